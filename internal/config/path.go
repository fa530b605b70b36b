package config

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Environment returns the option that names the environment variable of every flag that may have
// one, prefix first.
func Environment(prefix string) kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		return eachFlag(k.Model.Node, func(node *kong.Node, flag *kong.Flag) {
			if len(flag.Envs) > 0 || isTyped(flag) {
				return
			}
			path := flagPath(node, flag)
			if node.Tag != nil && node.Tag.Has("bare") {
				path = []string{flag.Name}
			}
			name := envName(prefix, path)
			flag.Envs, flag.Tag.Envs = []string{name}, []string{name}
		})
	})
}

// isTyped reports whether a flag has its value only from the command line.
func isTyped(flag *kong.Flag) bool { return flag.Tag.Has("typed") }

// envName joins a prefix and a path to a name such as LESSOR_WORKER_RUN_JOBS.
func envName(prefix string, path []string) string {
	name := prefix + "_" + strings.Join(path, "_")
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// eachFlag visits the flags below node that can be configured.
func eachFlag(node *kong.Node, visit func(*kong.Node, *kong.Flag)) error {
	return kong.Visit(node, func(n kong.Visitable, next kong.Next) error {
		if node, ok := n.(*kong.Node); ok {
			for _, flag := range node.Flags {
				if flag.Name != "help" && flag.Name != "version" {
					visit(node, flag)
				}
			}
		}
		return next(nil)
	})
}

// flagPath returns the keys that lead to a flag of node.
func flagPath(node *kong.Node, flag *kong.Flag) []string {
	if flag.Tag.Has("shared") {
		return []string{flag.Name}
	}
	return append(commandPath(node), flag.Name)
}

// commandPath returns the names of the commands that lead to node, the application left out.
func commandPath(node *kong.Node) []string {
	var path []string
	for ; node != nil && node.Type == kong.CommandNode; node = node.Parent {
		path = append(path, node.Name)
	}
	slices.Reverse(path)
	return path
}
