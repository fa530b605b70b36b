package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/words"
)

// completionCmd is lessor completion. When a shell calls it to complete a line, dispatch calls
// completeLine instead.
type completionCmd struct {
	Shell string `arg:"" optional:"" enum:"bash,zsh,fish" default:"bash" help:"The shell: bash, zsh or fish."`
}

// Help is shown below the flags.
func (completionCmd) Help() string {
	return `Prints what makes bash, zsh or fish complete commands, flags and some values.

Examples:
  eval "$(lessor completion)"           # in ~/.bashrc
  eval "$(lessor completion zsh)"       # in ~/.zshrc, after compinit
  lessor completion fish | source       # in ~/.config/fish/config.fish`
}

// completionScripts has what each shell runs. All of them call lessor completion with the line, and
// complete names of files if it prints nothing.
var completionScripts = map[string]string{
	"bash": `complete -o default -C 'lessor completion' lessor`,
	"zsh": `_lessor() {
  local found=(${(f)"$(COMP_LINE="${words[1,CURRENT-1]} $PREFIX" lessor completion)"})
  if (($#found)); then compadd -a found; else compset -P 1 '--*='; _files; fi
}
compdef _lessor lessor`,
	"fish": `complete -c lessor -n 'set -g __lessor_found (COMP_LINE=(commandline -cp) lessor completion)
  test -n "$__lessor_found"' -fka '$__lessor_found'`,
}

func (c completionCmd) Run(a *app) error {
	_, err := fmt.Fprintln(a.out, completionScripts[c.Shell])
	return err
}

// lineToComplete returns the command line up to the cursor, and what the shell takes for its last
// word, if a shell has called lessor completion for it (complete -C). Then args are not arguments:
// bash adds the name of the command, the last word and the word before, zsh and fish nothing.
func lineToComplete(args []string) (line, word string, ok bool) {
	line, ok = os.LookupEnv("COMP_LINE")
	if !ok || len(args) == 0 || args[0] != "completion" {
		return "", "", false
	}
	if at, err := strconv.Atoi(os.Getenv("COMP_POINT")); err == nil && 0 <= at && at < len(line) {
		line = line[:at]
	}
	if len(args) > 2 {
		return line, args[2], true
	}
	return line, line[strings.LastIndexByte(line, ' ')+1:], true
}

// completeLine prints what the last word of a command line can be. If it prints nothing, the shell
// completes names of files. Of --flag=value, word is only the value in bash, and all of it in zsh
// and fish.
func completeLine(w io.Writer, root *kong.Node, line, word string) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	if strings.TrimRight(line, " \t") != line || len(words) == 1 {
		words = append(words, "")
	}
	last := len(words) - 1
	node, flag, ok := follow(root, words[1:last])
	if !ok {
		return nil
	}
	begun, lead := words[last], ""
	if name, value, both := strings.Cut(begun, "="); both && flag == nil && strings.HasPrefix(name, "--") {
		if flag = flagOf(node, name); flag == nil {
			return nil
		}
		if begun = value; strings.HasPrefix(word, name) {
			lead = name + "="
		}
	}
	if flag != nil && flag.IsSlice() { // of several values, the last one
		at := strings.LastIndexByte(begun, ',') + 1
		lead, begun = lead+begun[:at], begun[at:]
	}
	for _, one := range candidates(node, flag, begun) {
		if _, err := fmt.Fprintln(w, lead+one); err != nil {
			return err
		}
	}
	return nil
}

// follow goes from the root along complete words. It returns the command that they name, and the
// flag whose value comes next; nil: no value does. ok is false where the words are another
// program's: after --, or after its name.
func follow(node *kong.Node, words []string) (at *kong.Node, flag *kong.Flag, ok bool) {
	for _, word := range words {
		switch {
		case flag != nil:
			flag = nil
		case word == "--":
			return nil, nil, false
		case strings.HasPrefix(word, "-"):
			if f := flagOf(node, word); f != nil && !f.IsBool() && !f.IsCounter() {
				flag = f
			}
		default:
			if i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == word }); i >= 0 {
				node = node.Children[i]
			} else if slices.ContainsFunc(node.Positional, func(p *kong.Positional) bool { return p.Passthrough }) {
				return nil, nil, false
			}
		}
	}
	return node, flag, true
}

// flagsOf returns the flags that a command takes, those of all commands included.
func flagsOf(node *kong.Node) []*kong.Flag { return slices.Concat(node.AllFlags(true)...) }

// flagOf returns the flag that a word without = names, or nil.
func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, f := range flagsOf(node) {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

// candidates returns what begins with a word: values of a flag, or without one flags or commands.
func candidates(node *kong.Node, flag *kong.Flag, word string) (found []string) {
	var all []string
	switch {
	case flag != nil && flag.Name == "state":
		all = words.StateNames()
	case flag != nil && flag.Name == "end-reason":
		all = words.EndReasonNames()
	case flag != nil && flag.Enum != "":
		all = flag.EnumSlice()
	case flag != nil:
	case strings.HasPrefix(word, "-"):
		for _, f := range flagsOf(node) {
			all = append(all, "--"+f.Name)
		}
	default:
		for _, c := range node.Children {
			all = append(all, c.Name)
		}
	}
	for _, one := range all {
		if strings.HasPrefix(one, word) {
			found = append(found, one)
		}
	}
	return found
}
