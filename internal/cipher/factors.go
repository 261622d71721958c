package cipher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// Names of the factors of engine cipher.
const (
	LibraryFactor   factor.Name = "library"
	AlgorithmFactor factor.Name = "algorithm"
	OperationFactor factor.Name = "operation"
	ModeFactor      factor.Name = "cipher_mode"
	BlockFactor     factor.Name = "block_size"
	ThreadsFactor   factor.Name = "threads"
	NodeFactor      factor.Name = "node"
)

// AllThreads is the level of the factor threads for one thread per CPU of the node.
const AllThreads = "all"

// Limits of a measurement.
const (
	MaxBlock   = 1 << 20 // bytes
	MaxThreads = 1024
)

// Libraries lists the libraries, the default first.
func Libraries() []string { return []string{OpenSSL, Go, Kernel} }

// Names lists the algorithms' names, in display order.
func Names() (names []string) {
	for _, a := range Algorithms() {
		names = append(names, a.Name)
	}
	return names
}

// nodeForm matches a node's name.
var nodeForm = check.Pattern(`^[a-z][a-z0-9-]*$`)

// Factors declares the factors of engine cipher for labs of these shapes.
func Factors(shapes []factor.Shape) []factor.Declaration {
	itself := func(level string) string { return level }
	measured := factor.Beside(factor.Engine, "engine is not cipher",
		func(e string) bool { return e == factor.CipherEngine })
	where := func(why string, ok func(Algorithm) bool) func(factor.Cell) (bool, string) {
		return func(c factor.Cell) (bool, string) {
			is, not := measured(c)
			if !is {
				return false, not
			}

			a, _ := Named(AlgorithmFactor.Of(c))
			if !ok(a) {
				return false, a.Name + " " + why
			}

			return true, ""
		}
	}
	list := []factor.Declaration{
		{
			Name:    "library",
			Default: OpenSSL,
			Levels:  Libraries(),
			Rank:    15,
			Short:   itself,
			Doc: "implementation of the cipher: the installed openssl, Go's libraries in the agent, or " +
				"the kernel's crypto through AF_ALG",
		},
		{
			Name:    "algorithm",
			Default: "aes-128-gcm",
			Levels:  Names(),
			Rank:    16,
			Short:   itself,
			Doc:     "cipher, hash, key exchange or signature",
		},
		{
			Name:   "operation",
			Levels: []string{Encrypt, Decrypt, Hash, Derive, Sign, Verify},
			Rank:   17,
			Short:  itself,
			Doc: "operation of the algorithm; by default encrypt, hash, derive (a shared key) or " +
				"sign, whichever the algorithm has",
			Conflict: operationConflict,
			Derive: func(c factor.Cell) string {
				a, _ := Named(AlgorithmFactor.Of(c))
				return a.Operations[0]
			},
		},
		{
			Name:   "cipher_mode",
			Levels: []string{ModeEVP, ModeAEAD},
			Rank:   18,
			Short:  itself,
			Doc: "how an AEAD is measured: as a stream of data, as in published tables (openssl speed " +
				"-evp), or as packets, each with a nonce and a tag (-aead); by default aead, but evp " +
				"with openssl and blocks of 16384 bytes or more",
			Applies:  where("is no AEAD", func(a Algorithm) bool { return a.AEAD }),
			Conflict: modeConflict,
			Derive: func(c factor.Cell) string {
				if LibraryFactor.Is(c, OpenSSL) && BlockFactor.Number(c) >= Published {
					return ModeEVP
				}
				return ModeAEAD
			},
		},
		{
			Name:    "block_size",
			Unit:    "bytes",
			Default: fmt.Sprint(Packet),
			Rank:    19,
			Doc:     "bytes that the cipher or hash processes in one call",
			Parse:   factor.Whole(1, MaxBlock),
			Applies: where("works on no blocks", Algorithm.Blocks),
			Short:   func(level string) string { return level + " B blocks" },
		},
		{
			Name:    "threads",
			Unit:    "count, all",
			Default: "1",
			Rank:    23,
			Doc:     "number of threads; all: one for each CPU of the node",
			Parse:   factor.OrWord(AllThreads, factor.Whole(1, MaxThreads)),
			Short: func(level string) string {
				if level == "1" {
					return "1 thread"
				}
				return level + " threads"
			},
		},
		{
			Name: "node",
			Unit: "name",
			Rank: 24,
			Doc: "the node whose ciphers are measured: by default the first router, or the near end if " +
				"there is no router",
			Parse:   factor.Formed(nodeForm, "the name of a node, such as router"),
			Refuses: noNode,
			Derive:  func(c factor.Cell) string { return usualNode(shapes, factor.Topology.Of(c)) },
		},
	}
	for i := range list {
		d := &list[i]
		d.Kind, d.Base, d.Dependent, d.Leading = factor.Activity, true, true, d.Name != string(NodeFactor)
		if d.Applies == nil {
			d.Applies = measured
		}
	}

	return list
}

// noNode returns an error text if the lab does not have the cell's node.
func noNode(s factor.Shape, c factor.Cell) string {
	name := NodeFactor.Of(c)
	has := func(n factor.Node) bool { return n.Name == name }
	if name == factor.Host || slices.ContainsFunc(s.Nodes, has) {
		return ""
	}

	return fmt.Sprintf("topology %s has no node %s", s.Name, name)
}

// usualNode returns the default node: the first router, or the near endpoint if there is no router.
func usualNode(shapes []factor.Shape, topology string) string {
	for _, s := range shapes {
		switch {
		case s.Name != topology:
		case len(s.Routers) > 0:
			return s.Routers[0]
		default:
			return s.Near
		}
	}
	return "router"
}

func operationConflict(c factor.Cell) string {
	a, _ := Named(AlgorithmFactor.Of(c))
	op := OperationFactor.Of(c)
	if !slices.Contains(a.Operations, op) {
		return fmt.Sprintf("%s has no operation %s: it has %s", a.Name, op, strings.Join(a.Operations, ", "))
	}

	return ""
}

func modeConflict(c factor.Cell) string {
	if ModeFactor.Is(c, ModeEVP) && !LibraryFactor.Is(c, OpenSSL) {
		return fmt.Sprintf("cipher_mode evp is openssl's: library %s works on packets", LibraryFactor.Of(c))
	}
	return ""
}

// CellOf returns the cipher measurement that a plan's cell describes. cpus is the node's number of CPUs.
func CellOf(f factor.Cell, cpus int) Cell {
	c := Cell{
		Library:   LibraryFactor.Of(f),
		Algorithm: AlgorithmFactor.Of(f),
		Operation: OperationFactor.Of(f),
		Mode:      ModeFactor.Of(f),
		Block:     BlockFactor.Number(f),
		Threads:   ThreadsFactor.Number(f),
	}
	if ThreadsFactor.Is(f, AllThreads) {
		c.Threads = cpus
	}
	return c
}
