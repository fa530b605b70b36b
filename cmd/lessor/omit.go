package main

import (
	"bytes"
	"strings"
)

// compact returns a valid JSON text without white space, and without the members of objects at the given paths, such as "spec.payload". The other members keep
// their order.
func compact(text []byte, omit []string) []byte {
	c := compactor{in: text, out: make([]byte, 0, len(text))}
	c.value(omit)
	return c.out
}

// compactor copies a JSON text, token by token.
type compactor struct{ in, out []byte }

// value copies the next value, without the members at the given paths.
func (c *compactor) value(omit []string) {
	token := c.next()
	c.out = append(c.out, token...)
	if token[0] == '{' && len(omit) > 0 {
		c.members(omit)
		return
	}
	for depth := depthAfter(0, token); depth > 0; depth = depthAfter(depth, token) {
		token = c.next()
		c.out = append(c.out, token...)
	}
}

func depthAfter(depth int, token []byte) int {
	switch token[0] {
	case '{', '[':
		return depth + 1
	case '}', ']':
		return depth - 1
	}
	return depth
}

// members copies the members of an object, and the brace behind them.
func (c *compactor) members(omit []string) {
	first := len(c.out)
	for {
		begin := len(c.out)
		name := c.next()
		if name[0] == ',' {
			name = c.next()
		}
		if name[0] == '}' {
			c.out = append(c.out, '}')
			return
		}
		if begin > first {
			c.out = append(c.out, ',')
		}
		c.out = append(append(c.out, name...), c.next()...) // the colon
		drop, below := descend(omit, string(bytes.Trim(name, `"`)))
		c.value(below)
		if drop {
			c.out = c.out[:begin]
		}
	}
}

// next returns the next token: a string with its quotes, a brace, a bracket, a comma or a colon, or else a number or a word.
func (c *compactor) next() []byte {
	text := bytes.TrimLeft(c.in, " \t\r\n")
	end := 1
	switch text[0] {
	case '{', '}', '[', ']', ',', ':':
	case '"':
		for ; text[end] != '"'; end++ {
			if text[end] == '\\' {
				end++
			}
		}
		end++
	default:
		for end < len(text) && !bytes.ContainsRune([]byte(" \t\r\n,:]}"), rune(text[end])) {
			end++
		}
	}
	c.in = text[end:]
	return text[:end]
}

// descend says what the paths mean for the member with that name: whether to drop it, or else which paths below it to drop.
func descend(paths []string, name string) (drop bool, below []string) {
	for _, path := range paths {
		first, rest, deeper := strings.Cut(path, ".")
		switch {
		case first != name:
		case deeper:
			below = append(below, rest)
		default:
			drop = true
		}
	}
	return drop, below
}
