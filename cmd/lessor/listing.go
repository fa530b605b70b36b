package main

import (
	"bufio"
	"cmp"

	"google.golang.org/protobuf/proto"
)

// listing prints a list, as rows of a table or as lines of JSON. It holds a bounded number of items
// in memory.
type listing struct {
	table *table
	lines *bufio.Writer // of JSON; nil if there is a table
	// leftOut has the paths of the fields that the coordinator does not send in lists.
	leftOut []string
	begun   bool // an item was added
}

func newListing(a *app, heads ...string) *listing {
	if a.json {
		return &listing{lines: bufio.NewWriter(a.out)}
	}
	return &listing{table: newTable(a.out, heads...)}
}

// clipLast clips the last column on a terminal. A program that reads the rows gets all of it.
func (l *listing) clipLast() {
	if l.table != nil {
		l.table.clips = true
	}
}

// rowsAtOnce is how many rows determine the widths of their columns together. In a longer list,
// later columns may be wider.
const rowsAtOnce = 1000

// add prints m as JSON, or else the cells as a row.
func (l *listing) add(m proto.Message, cells ...string) error {
	l.begun = true
	if l.lines != nil {
		return printJSON(l.lines, m, l.leftOut...)
	}
	l.table.row(cells...)
	if len(l.table.rows) < rowsAtOnce {
		return nil
	}
	return l.table.flush()
}

// pageEnds says that the next item may take a while: a program that reads the lines has those up to
// here.
func (l *listing) pageEnds() error {
	if l.lines != nil {
		return l.lines.Flush()
	}
	return nil
}

// flush prints what is left.
func (l *listing) flush() error {
	if l.lines != nil {
		return l.lines.Flush()
	}
	return l.table.flush()
}

// end prints what is left before err, with which the list ended; nil if it is complete. After an
// error, it prints no table without rows: that would look like the answer that there are none.
func (l *listing) end(err error) error {
	if err != nil && !l.begun {
		return err
	}
	return cmp.Or(err, l.flush())
}

// printPages prints all pages of a list, and those before an error. read returns the items of the
// page that a token names, and the token of the next page. The first token is empty, and so is that
// after the last page.
func printPages[T proto.Message](
	l *listing, cells func(T) []string, read func(token string) (items []T, next string, err error),
) error {
	for token := ""; ; {
		items, next, err := read(token)
		if err != nil {
			return l.end(err)
		}
		for _, item := range items {
			if err := l.add(item, cells(item)...); err != nil {
				return err
			}
		}
		if token = next; token == "" {
			return l.flush()
		}
		if err := l.pageEnds(); err != nil {
			return err
		}
	}
}
