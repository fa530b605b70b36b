package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// mappers convert words of the command line to values. Kong's own mappers pass strings through
// JSON, which silently replaces bytes that are not UTF-8, and take a negative number for a flag.
//
// A field is text. It is tagged type:"bytes" if it may contain any bytes: payloads, commands and
// file names. It is tagged type:"positive" if it is a number whose zero means the default,
// type:"nonempty" if it is a text that must not be empty, and type:"file" if it is the name of a
// file or directory and no name has a meaning.
func mappers() []kong.Option {
	own := kong.NewRegistry().RegisterDefaults()
	options := []kong.Option{
		kong.NamedMapper("bytes", kong.MapperFunc(decodeBytes)),
		kong.NamedMapper("file", kong.MapperFunc(decodeFile)),
		kong.NamedMapper("positive", positive{own}),
		kong.NamedMapper("nonempty", nonempty{own}),
		kong.KindMapper(reflect.String, text{own}),
	}
	options = append(options,
		kong.TypeMapper(reflect.TypeFor[[]string](), lines{text{own}}),
		kong.TypeMapper(reflect.TypeFor[map[string]string](), lines{entries{text{own}}}),
	)
	for _, t := range []reflect.Type{reflect.TypeFor[map[string]int](), reflect.TypeFor[map[string]float64]()} {
		options = append(options, kong.TypeMapper(t, lines{entries{amounts{own.ForType(t)}}}))
	}
	for _, kind := range []reflect.Kind{
		reflect.Int, reflect.Int32, reflect.Uint, reflect.Uint32, reflect.Uint64, reflect.Float64,
	} {
		options = append(options, kong.KindMapper(kind, number{own}))
	}
	for _, t := range []reflect.Type{
		reflect.TypeFor[time.Duration](), reflect.TypeFor[when](), reflect.TypeFor[*rate](),
		reflect.TypeFor[size](), reflect.TypeFor[mebibytes](),
	} {
		options = append(options, kong.TypeMapper(t, number{own}))
	}
	return options
}

// decodeBytes decodes one value without changing it; for a list, all values that are left.
func decodeBytes(ctx *kong.DecodeContext, target reflect.Value) error {
	if target.Kind() == reflect.Slice {
		for _, token := range ctx.Scan.PopWhile(kong.Token.IsValue) {
			target.Set(reflect.Append(target, reflect.ValueOf(token.String())))
		}
		return nil
	}
	if err := missing(ctx); err != nil {
		return err
	}
	target.SetString(ctx.Scan.Pop().String())
	return nil
}

// decodeFile decodes the name of a file without changing it. It refuses an empty name, for example
// from an unset variable in a script, because an empty name would mean that no file was named.
func decodeFile(ctx *kong.DecodeContext, target reflect.Value) error {
	if err := decodeBytes(ctx, target); err != nil {
		return err
	}
	if target.String() == "" {
		return errEmpty
	}
	return nil
}

// errEmpty refuses an empty value.
var errEmpty = errors.New("must not be empty")

// missing returns an error if the next word is not a value.
func missing(ctx *kong.DecodeContext) error {
	next := ctx.Scan.Peek()
	switch {
	case next.IsValue():
		return nil
	case next.IsEOL():
		return errors.New("a value is missing")
	}
	return fmt.Errorf("a value is missing; if %q is the value, write %s=%s", next, ctx.Value.ShortSummary(), next)
}

// text refuses text that is not UTF-8, as the coordinator does.
type text struct{ own *kong.Registry }

func (m text) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if err := missing(ctx); err != nil {
		return err
	}
	if err := emptyElement(ctx, target); err != nil {
		return err
	}
	for i, token := range ctx.Scan.PeekAll() {
		if i > 0 && (ctx.Value.Flag != nil || target.Kind() != reflect.Slice) || !token.IsValue() {
			break
		}
		if s, ok := token.Value.(string); ok && !utf8.ValidString(s) {
			return fmt.Errorf("%q is not valid UTF-8", s)
		}
	}
	return m.own.ForType(target.Type()).Decode(ctx, target)
}

// emptyElement refuses a list that is empty, or has an empty element, which may be a variable of a
// script that is not set. Kong drops one at the end of a list.
func emptyElement(ctx *kong.DecodeContext, target reflect.Value) error {
	list, ok := ctx.Scan.Peek().Value.(string)
	sep := ctx.Value.Tag.Sep
	if !ok || ctx.Value.Flag == nil || target.Kind() != reflect.Slice || sep == -1 {
		return nil
	}
	if list == "" {
		return errEmpty
	}
	if i := slices.Index(kong.SplitEscaped(list+string(sep), sep), ""); i >= 0 {
		return fmt.Errorf("element %d of %q is empty", i+1, list)
	}
	return nil
}

// lines is for flags that are repeated, since no separator is left for their values (sep:"none").
// So that an environment variable can have several values, too, it takes each of its lines for a
// value.
type lines struct{ each kong.Mapper }

func (m lines) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	next := ctx.Scan.Peek()
	text, ok := next.Value.(string)
	repeated := ctx.Value.Flag != nil &&
		(target.Kind() == reflect.Slice && ctx.Value.Tag.Sep == -1 || target.Kind() == reflect.Map &&
			ctx.Value.Tag.MapSep == -1)
	if !repeated || !ok || !isVariable(ctx.Value, text) {
		return m.each.Decode(ctx, target)
	}
	ctx.Scan.Pop()
	all := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	if len(all) == 0 {
		return errEmpty
	}
	for _, line := range slices.Backward(all) {
		ctx.Scan.PushTyped(line, kong.FlagValueToken)
	}
	for range all {
		if err := m.each.Decode(ctx, target); err != nil {
			return err
		}
	}
	return nil
}

// entries is for flags that are given as KEY=VALUE. It refuses a key that comes again with another
// value, of which kong would take the last.
type entries struct{ each kong.Mapper }

func (m entries) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	next, sep := ctx.Scan.Peek(), ctx.Value.Tag.MapSep
	var several []string
	if text, ok := next.Value.(string); ok && next.IsValue() && sep != -1 {
		several = kong.SplitEscaped(text, sep)
	}
	if len(several) < 2 {
		return m.add(ctx, target)
	}
	ctx.Scan.Pop()
	for _, one := range several {
		ctx.Scan.PushTyped(kong.JoinEscaped([]string{one}, sep), kong.FlagValueToken)
		if err := m.add(ctx, target); err != nil {
			return err
		}
	}
	return nil
}

// add decodes the next word, which is one entry, or all of them if it comes from the configuration
// file, where no key comes twice.
func (m entries) add(ctx *kong.DecodeContext, target reflect.Value) error {
	added := reflect.New(target.Type()).Elem()
	if err := m.each.Decode(ctx, added); err != nil {
		return err
	}
	if target.IsNil() {
		target.Set(reflect.MakeMap(target.Type()))
	}
	for entry := added.MapRange(); entry.Next(); {
		if before := target.MapIndex(entry.Key()); before.IsValid() && !before.Equal(entry.Value()) {
			return fmt.Errorf("%q is given twice: %v and %v", entry.Key(), before, entry.Value())
		}
		target.SetMapIndex(entry.Key(), entry.Value())
	}
	return nil
}

// isVariable reports whether a text with several lines comes from the environment. On the command
// line such a text is one value, for example a label's.
func isVariable(flag *kong.Value, text string) bool {
	return strings.Contains(text, "\n") &&
		slices.ContainsFunc(flag.Tag.Envs, func(name string) bool { return os.Getenv(name) == text })
}

// nonempty is for text that must not be empty, because empty text would mean that the flag was not
// given.
type nonempty struct{ own *kong.Registry }

func (m nonempty) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if next := ctx.Scan.Peek(); next.IsValue() && next.Value == "" {
		return errEmpty
	}
	if target.Kind() == reflect.Slice && target.Type().Elem().Kind() != reflect.String {
		if err := emptyElement(ctx, target); err != nil {
			return err
		}
		return amounts{m.own.ForType(target.Type())}.Decode(ctx, target)
	}
	return text(m).Decode(ctx, target)
}

// number also accepts negative numbers, which look like short flags.
type number struct{ own *kong.Registry }

func (m number) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	next := ctx.Scan.Peek()
	if s := next.String(); len(s) > 1 && s[0] == '-' && strings.IndexByte("0123456789.", s[1]) >= 0 {
		ctx.Scan.Pop()
		ctx.Scan.PushTyped(s, kong.FlagValueToken)
	}
	if err := missing(ctx); err != nil {
		return err
	}
	if err := m.own.ForType(target.Type()).Decode(ctx, target); err != nil {
		return notNumber(next.String(), target.Type())
	}
	return nil
}

// notNumber says why a text is no value of a type.
func notNumber(text string, t reflect.Type) error {
	if errors.Is(rangeError(text, t), strconv.ErrRange) {
		return fmt.Errorf("is %s, which is out of range", text)
	}
	return fmt.Errorf("%q is not %s", text, nounOf(t))
}

// amounts is for lists of numbers and for numbers by name. Kong's own errors speak of Go types, or
// do not say what is wrong.
type amounts struct{ own kong.Mapper }

func (m amounts) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	given, _ := ctx.Scan.Peek().Value.(string) // a list or a table is from the file, which has errors of its own
	if err := missing(ctx); err != nil {
		return err
	}
	err := m.own.Decode(ctx, target)
	if err == nil {
		return nil
	}
	items, of := strings.Split(given, ","), target.Type().Elem()
	if target.Kind() == reflect.Map {
		_, amount, found := strings.Cut(given, "=")
		if !found {
			return err
		}
		items = []string{amount}
	}
	for _, item := range items {
		if !isNumber(item, of) {
			return notNumber(item, of)
		}
	}
	return err
}

// isNumber reports whether a text is a number that the type can hold.
func isNumber(text string, t reflect.Type) bool {
	if t.Kind() == reflect.Float64 {
		_, err := strconv.ParseFloat(text, t.Bits())
		return err == nil
	}
	_, err := strconv.ParseInt(text, 0, t.Bits())
	return err == nil
}

// rangeError returns strconv.ErrRange, wrapped, if s is a whole number that the type cannot hold.
// The limit of the flag itself may be lower.
func rangeError(s string, t reflect.Type) (err error) {
	if t.PkgPath() != "" { // a type of our own or a duration, which have another form
		return nil
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32:
		_, err = strconv.ParseInt(s, 0, t.Bits())
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		_, err = strconv.ParseUint(s, 0, t.Bits())
	}
	return err
}

// nounOf says what a number must be.
func nounOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s or 1h30m"
	case t == reflect.TypeFor[when]():
		return "a time such as 2026-12-01T06:00:00Z or a span such as 10m"
	case t == reflect.TypeFor[size]():
		return "a size such as 65536, 512KiB, 1MiB or 2GB"
	case t == reflect.TypeFor[mebibytes]():
		return "a number of MiB, nor a size such as 512MiB or 2GB"
	case t == reflect.TypeFor[*rate]():
		return "a rate such as 5/s, 300/m, 1000/h or 50/d; 0 is no limit"
	case t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		return "a whole number without a sign"
	}
	return "a whole number"
}

// positive is for numbers that must be more than 0: without the flag the default applies, and an
// explicit 0 must not mean the default.
type positive struct{ own *kong.Registry }

func (m positive) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	given := ctx.Scan.Peek()
	if err := number(m).Decode(ctx, target); err != nil {
		return err
	}
	zero := reflect.Zero(target.Type())
	if target.Equal(zero) || target.CanInt() && target.Int() < 0 || target.CanFloat() && target.Float() < 0 {
		return fmt.Errorf("is %s; it must be more than 0", given)
	}
	return nil
}
