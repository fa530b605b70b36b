package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/lessor-dev/lessor/internal/pipe"
)

// File is the type of the flag that names the configuration file. The flag itself cannot be set in
// the file.
type File string

// BeforeResolve reads the file. Its values apply to the flags that neither the command line nor the
// environment sets. The error is an *Error, except for an empty name on the command line: that is
// probably an unset variable of a script, and the settings of its file, perhaps those of security,
// would be missing. An empty environment variable names no file.
func (f File) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	name, _ := ctx.FlagValue(trace.Flag).(File)
	switch {
	case name == "" && PlaceOf(ctx, trace.Flag) == CommandLine:
		return fmt.Errorf("--%s: must not be empty", trace.Flag.Name)
	case name == "":
		return nil
	}
	root, err := parse(string(name))
	if err != nil {
		return err
	}
	g := newGrammar(ctx.Model.Node, trace.Flag)
	given := make(values)
	if err := g.read(root, nil, given); err != nil {
		err.File = string(name)
		return err
	}
	ctx.AddResolver(given)
	return nil
}

// Error says what is wrong with a configuration file.
type Error struct {
	File    string
	Line    int // 0: the file as a whole
	Problem string
}

// Error returns the message, preceded by file and line as in the messages of compilers.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Problem
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
}

// parse returns the top mapping of a file, or nil if the file is empty.
func parse(name string) (*yaml.Node, error) {
	data, err := pipe.ReadFile(name)
	if err != nil {
		return nil, &Error{File: name, Problem: withoutPath(err)}
	}
	var doc, more yaml.Node
	docs := yaml.NewDecoder(bytes.NewReader(data))
	err = docs.Decode(&doc)
	if err == nil {
		err = docs.Decode(&more) // a second document would be ignored
	}
	switch {
	case err == nil:
		return nil, &Error{
			File: name, Line: more.Line,
			Problem: "a second YAML document begins here; the file may have only one",
		}
	case !errors.Is(err, io.EOF):
		return nil, &Error{File: name, Problem: "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	case len(doc.Content) == 0:
		return nil, nil
	}
	return doc.Content[0], nil
}

func withoutPath(err error) string {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// grammar says what a file may contain.
type grammar struct {
	flags    map[string][]*kong.Flag // by joined path; for a shared flag one entry per command
	sections map[string]bool
}

func newGrammar(root *kong.Node, own *kong.Flag) grammar {
	g := grammar{flags: make(map[string][]*kong.Flag), sections: map[string]bool{"": true}}
	_ = eachFlag(root, func(node *kong.Node, flag *kong.Flag) {
		if flag == own {
			return
		}
		path := flagPath(node, flag)
		g.flags[join(path)] = append(g.flags[join(path)], flag)
		for i := range path[1:] {
			g.sections[join(path[:i+1])] = true
		}
	})
	return g
}

// mostSame is how many keys of the same name are shown for one that is none.
const mostSame = 3

// meant returns words about which keys may be meant by one that is none: the most similar one of
// its section, or else those of the same name in other sections, or else the most similar one of
// all. If it holds keys and values, it may be a section that is meant.
func (g grammar) meant(path []string, holdsKeys bool) string {
	name, key := join(path), path[len(path)-1]
	section := strings.TrimSuffix(name, key)
	all, own, same := make(map[string]string), make(map[string]string), []string{}
	for known := range g.keys(holdsKeys) {
		all[known] = known
		if rest, inside := strings.CutPrefix(known, section); inside && !strings.Contains(rest, ".") {
			own[known] = known
		}
		if known == key || strings.HasSuffix(known, "."+key) {
			same = append(same, known)
		}
	}
	slices.Sort(same)
	near := similar(name, own)
	if near == "" && len(same) == 0 {
		near = similar(name, all)
	}
	switch {
	case near != "":
		return "; a similar one is " + near
	case len(same) == 0:
		return ""
	case len(same) == 1:
		return "; a similar one is " + same[0]
	case len(same) > mostSame:
		return fmt.Sprintf("; similar ones are %s and %d more", strings.Join(same[:mostSame], ", "), len(same)-mostSame)
	}
	return "; similar ones are " + strings.Join(same, ", ")
}

// keys returns the names of the keys that a file may have, without those that are only for the
// command line; with those of their sections, if asked for.
func (g grammar) keys(sections bool) map[string]bool {
	names := make(map[string]bool)
	for name, flags := range g.flags {
		if slices.ContainsFunc(flags, isTyped) {
			continue
		}
		names[name] = true
		for i, c := range name {
			if sections && c == '.' {
				names[name[:i]] = true
			}
		}
	}
	return names
}

func join(path []string) string { return strings.Join(path, ".") }

// read copies the values of the section at path into given. The *Error that it returns has no file
// name.
func (g grammar) read(section *yaml.Node, path []string, given values) *Error {
	if section == nil {
		return nil
	}
	if section.Kind != yaml.MappingNode {
		return &Error{Line: section.Line, Problem: fmt.Sprintf("%s must hold keys and values", nameOf(path))}
	}
	seen := make(map[string]bool)
	for i := 0; i < len(section.Content); i += 2 {
		key, value := section.Content[i], section.Content[i+1]
		if seen[key.Value] {
			return &Error{Line: key.Line, Problem: fmt.Sprintf("key %q appears twice", key.Value)}
		}
		seen[key.Value] = true
		if err := g.readKey(key, value, append(path[:len(path):len(path)], key.Value), given); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(path []string) string {
	if len(path) == 0 {
		return "the file"
	}
	return fmt.Sprintf("section %q", join(path))
}

func (g grammar) readKey(key, value *yaml.Node, path []string, given values) *Error {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	name := join(path)
	flags := g.flags[name]
	// "token" is a flag and a group of commands
	if g.sections[name] && (flags == nil || value.Kind == yaml.MappingNode) {
		return g.read(value, path, given)
	}
	if flags == nil {
		return &Error{Line: key.Line, Problem: fmt.Sprintf("unknown key %q", name) + g.meant(path,
			value.Kind == yaml.MappingNode)}
	}
	for _, flag := range flags {
		if isTyped(flag) {
			return &Error{
				Line:    key.Line,
				Problem: fmt.Sprintf("key %q: --%s is read only from the command line", name, flag.Name),
			}
		}
		if err := given.set(flag, value); err != nil {
			return &Error{Line: value.Line, Problem: fmt.Sprintf("key %q: %v", name, err)}
		}
	}
	return nil
}

// values are the values in a file. They implement kong.Resolver.
type values map[*kong.Flag]any

// set stores a value if the flag can hold it. So a bad value is reported with its line, even if
// another command runs than the flag's.
func (v values) set(flag *kong.Flag, node *yaml.Node) error {
	items := itemsOf(flag.Target.Type())
	value, err := decode(node, items)
	if err != nil {
		return err
	}
	if err := checkForm(value, flag.Target.Kind()); err != nil {
		return err
	}
	trial := reflect.New(flag.Target.Type()).Elem()
	scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
	if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, trial); err != nil {
		if _, plain := value.(string); !plain && items.problem != "" {
			return errors.New(items.problem) // kong would show its Go types
		}
		return err
	}
	// kong checks only the command that runs, and knows no line
	if word := trial.String(); flag.Enum != "" && !slices.Contains(flag.EnumSlice(), word) {
		return fmt.Errorf("%q is not one of %s", word, strings.Join(flag.EnumSlice(), ", "))
	}
	v[flag] = value
	return nil
}

// items describes the items of a flag that is a list or a table.
type items struct {
	form    func(string) any // converts an item for kong, whose mappers pass lists and tables through JSON
	problem string           // the error for items of another form; empty if every form is allowed
}

func itemsOf(flag reflect.Type) items {
	if flag.Kind() == reflect.Slice || flag.Kind() == reflect.Map {
		number := func(s string) any { return json.Number(s) }
		switch kind := flag.Elem().Kind(); {
		case kind >= reflect.Int && kind <= reflect.Uint64:
			return items{number, "must hold whole numbers"}
		case kind == reflect.Float32 || kind == reflect.Float64:
			return items{number, "must hold numbers"}
		}
	}
	return items{form: func(s string) any { return s }}
}

// decode turns a scalar into a string, a sequence into []any and a mapping into map[string]any of
// its items: the forms that kong's mappers take.
func decode(node *yaml.Node, of items) (any, error) {
	switch {
	case node.Kind == yaml.ScalarNode && !isNull(node):
		return node.Value, nil
	case node.Kind == yaml.SequenceNode:
		if i := slices.IndexFunc(node.Content, isNull); i >= 0 {
			return nil, fmt.Errorf("entry %d has no value", i+1)
		}
		var list []string
		if err := node.Decode(&list); err != nil {
			return nil, errors.New("must be a list of plain values")
		}
		if i := slices.Index(list, ""); i >= 0 {
			return nil, fmt.Errorf("entry %d is empty", i+1)
		}
		out := make([]any, len(list))
		for i, item := range list {
			out[i] = of.form(item)
		}
		return out, nil
	case node.Kind == yaml.MappingNode:
		if err := checkTable(node); err != nil {
			return nil, err
		}
		var table map[string]string
		if err := node.Decode(&table); err != nil {
			return nil, errors.New("must be a table of plain values")
		}
		out := make(map[string]any, len(table))
		for key, item := range table {
			out[key] = of.form(item)
		}
		return out, nil
	}
	return nil, errors.New("has no value")
}

// checkTable refuses a table that has a key twice, or without a value.
func checkTable(table *yaml.Node) error {
	lines := make(map[string]int)
	for i := 0; i < len(table.Content); i += 2 {
		key := table.Content[i]
		if line, twice := lines[key.Value]; twice {
			return fmt.Errorf("%q appears twice, in lines %d and %d", key.Value, line, key.Line)
		}
		if isNull(table.Content[i+1]) {
			return fmt.Errorf("%q has no value", key.Value)
		}
		lines[key.Value] = key.Line
	}
	return nil
}

// isNull reports whether a node is null. Package yaml would read that as an empty text, and kong as
// 0.
func isNull(node *yaml.Node) bool {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node.Kind == yaml.ScalarNode && node.Tag == "!!null"
}

// checkForm refuses a list or a table for a flag of another form. Some mappers would take it as
// text, or name Go types in their errors.
func checkForm(value any, wants reflect.Kind) error {
	_, list := value.([]any)
	_, table := value.(map[string]any)
	switch {
	case wants == reflect.Map && list:
		return errors.New("must be a table, not a list")
	case wants == reflect.Slice && table:
		return errors.New("must be a list, not a table")
	case wants != reflect.Map && wants != reflect.Slice && (list || table):
		return errors.New("must be a single value")
	}
	return nil
}

// Validate does nothing: the whole file was checked when it was read.
func (v values) Validate(*kong.Application) error { return nil }

// Resolve returns the value of a flag, unless the environment has one, which takes precedence.
func (v values) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Tag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	return v[flag], nil
}
