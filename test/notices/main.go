// Notices writes down the licences of all that is compiled into a program, as they ask of whoever
// passes the program on: `make notices`.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: notices PACKAGE FILE")
	}
	parts, err := linked(args[0])
	if err != nil {
		return err
	}
	text, err := notices(parts)
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], text, 0o644) //nolint:gosec // everybody may read it
}

// part is a module that is compiled in, or the standard library.
type part struct {
	name string // with its version
	root string
	dirs []string // of the packages that are compiled in
}

// linked returns the parts of a program for the platform of the environment, sorted by name,
// without the main module.
func linked(program string) ([]part, error) {
	out, err := output("go", "list", "-deps", "-json=Dir,Standard,Module", program)
	if err != nil {
		return nil, err
	}
	goroot, err := output("go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(goroot)), "\n")
	found := map[string]*part{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		name, at := p.Module.Path+" "+p.Module.Version, p.Module.Dir
		if p.Standard {
			name, at = "Go "+version, root
		}
		if p.Module.Main {
			continue
		}
		if found[name] == nil {
			found[name] = &part{name: name, root: at}
		}
		found[name].dirs = append(found[name].dirs, p.Dir)
	}
	var parts []part
	for _, p := range found {
		parts = append(parts, *p)
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.name, b.name) })
	return parts, nil
}

func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

// isNotice matches the names of files that say on which terms a part may be passed on.
var isNotice = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// notices returns each text once, below the names of the parts that have it. It is an error if a
// part has no text.
func notices(parts []part) ([]byte, error) {
	type entry struct {
		of   []string
		text []byte
	}
	var all []*entry
	known := map[[sha256.Size]byte]*entry{}
	for _, p := range parts {
		files, err := p.notices()
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(text)
			if known[sum] == nil {
				known[sum] = &entry{text: bytes.TrimSpace(text)}
				all = append(all, known[sum])
			}
			inside, _ := filepath.Rel(p.root, file)
			known[sum].of = append(known[sum].of, p.name+": "+filepath.ToSlash(inside))
		}
	}
	var out bytes.Buffer
	for _, e := range all {
		fmt.Fprintf(&out, "%s\n\n%s\n\n%s\n\n", strings.Repeat("=", 80), strings.Join(e.of, "\n"), e.text)
	}
	return out.Bytes(), nil
}

// notices returns the files of a part that are about the packages that are compiled in: those
// beside them, and in the directories above.
func (p part) notices() (files []string, err error) {
	seen := map[string]bool{}
	for _, dir := range append([]string{p.root}, p.dirs...) {
		for ; !seen[dir] && (dir == p.root || strings.HasPrefix(dir, p.root+string(filepath.Separator))); dir = filepath.Dir(dir) {
			seen[dir] = true
			entries, err := os.ReadDir(dir)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if e.Type().IsRegular() && isNotice.MatchString(e.Name()) && filepath.Ext(e.Name()) != ".go" {
					files = append(files, filepath.Join(dir, e.Name()))
				}
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no licence in %s", p.name, p.root)
	}
	return files, nil
}
