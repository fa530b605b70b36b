package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A person types a line into each shell, set up as docs/cli.md says, and presses Tab.
func TestShellsComplete(t *testing.T) {
	lines := []string{
		"lessor ta", "lessor task",
		"lessor --json task li", "lessor --json task list",
		"lessor task list --concur", "lessor task list --concurrency-key",
		"lessor task list --state=CANCELLI", "lessor task list --state=CANCELLING",
		"lessor task list --state READY,RU", "lessor task list --state READY,RUNNING",
		"lessor serve --data fi", "lessor serve --data file.json",
		"lessor serve --data=fi", "lessor serve --data=file.json",
	}
	for _, shell := range []struct {
		name, rc, setup string
	}{
		{"bash", ".bashrc", `PS1='ready-$(wc -l <out)-'; bind 'set enable-bracketed-paste off'; eval "$(lessor completion)"`},
		{"zsh", ".zshrc", `setopt promptsubst; PS1='ready-$(wc -l <out)-'; autoload -U compinit && compinit -D -u` + "\n" +
			`eval "$(lessor completion zsh)"`},
		{"fish", ".config/fish/config.fish", "function fish_prompt; echo ready-(wc -l <out)-; end\nlessor completion fish | source"},
	} {
		t.Run(shell.name, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(shell.name)
			if err != nil {
				t.Skip(err)
			}
			home := t.TempDir()
			for name, text := range map[string]string{shell.rc: shell.setup + "\n", "out": "", "file.json": "", "tax.json": "", "within/only.json": ""} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(path, "-i")
			cmd.Dir = home
			cmd.Env = append(os.Environ(), "HOME="+home, "ZDOTDIR="+home, "TERM=xterm",
				"XDG_CONFIG_HOME="+filepath.Join(home, ".config"), "XDG_DATA_HOME="+filepath.Join(home, ".local"))
			typeInto(t, cmd, lines)
			out, err := os.ReadFile(filepath.Join(home, "out"))
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
				if want := lines[2*i+1]; got != want {
					t.Errorf("%q is completed to %q, want %q", lines[2*i], got, want)
				}
			}
		})
	}
}

// typeInto runs a shell on a terminal, and types every other line with a Tab behind it. What has
// become of it goes to the file out; the prompt says how many lines are there.
func typeInto(t *testing.T, shell *exec.Cmd, lines []string) {
	terminal, other := openTerminal(t)
	shell.Stdin, shell.Stdout, shell.Stderr = other, other, other
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	}()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for i := 0; i <= len(lines)/2; i++ {
		waitFor(t, terminal, fmt.Sprintf("ready-%d-", i))
		if 2*i == len(lines) {
			return
		}
		// ^A goes to the begin of the line
		if _, err := terminal.WriteString(lines[2*i] + "\t\x01echo >>out \r"); err != nil {
			t.Fatal(err)
		}
	}
}

// waitFor reads what a terminal shows up to a text.
func waitFor(t *testing.T, terminal *os.File, text string) {
	t.Helper()
	var shown []byte
	for b := make([]byte, 1024); !strings.Contains(string(shown), text); {
		n, err := terminal.Read(b)
		if shown = append(shown, b[:n]...); err != nil {
			t.Fatalf("waiting for %q: %v after %q", text, err, shown)
		}
	}
}

// openTerminal returns both ends of a terminal: the person's and the shell's.
func openTerminal(t *testing.T) (person, shell *os.File) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	person = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200}); err != nil {
		t.Fatal(err)
	}
	if err := person.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	shell, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return person, shell
}
