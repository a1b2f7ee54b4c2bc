package manual

import (
	"github.com/alecthomas/kong"
)

// eachCommand gives every visible command, the program itself first, with
// its words.
func eachCommand(root *kong.Node, do func(n *kong.Node, path string)) {
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		do(n, path)
		for _, child := range shown(n) {
			walk(child, path+" "+child.Name)
		}
	}
	walk(root, "zabor")
}

func shown(n *kong.Node) (children []*kong.Node) {
	for _, child := range n.Children {
		if !child.Hidden && child.Type == kong.CommandNode {
			children = append(children, child)
		}
	}
	return children
}
