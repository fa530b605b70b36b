package main

import (
	"google.golang.org/protobuf/proto"
)

// listing prints a list, as rows of a table or as lines of JSON.
type listing struct {
	a     *app
	table *table
	// leftOut has the paths of the fields that the coordinator does not send in lists.
	leftOut []string
}

func newListing(a *app, heads ...string) *listing {
	l := &listing{a: a}
	if !a.json {
		l.table = newTable(a.out, heads...)
	}
	return l
}

// add prints m as JSON, or else the cells as a row.
func (l *listing) add(m proto.Message, cells ...string) error {
	if l.a.json {
		return printJSON(l.a.out, m, l.leftOut...)
	}
	l.table.row(cells...)
	return nil
}

func (l *listing) flush() error {
	if l.a.json {
		return nil
	}
	return l.table.flush()
}

// printPages prints all pages of a list. read returns the items of the page that a token names, and the token of the next page. The first token is empty,
// and so is that after the last page.
func printPages[T proto.Message](l *listing, cells func(T) []string, read func(token string) (items []T, next string, err error)) error {
	for token := ""; ; {
		items, next, err := read(token)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := l.add(item, cells(item)...); err != nil {
				return err
			}
		}
		if token = next; token == "" {
			return l.flush()
		}
	}
}
