// Package node is the part of the registry that an agent carries: the node
// halves of every family, by verb.
package node
