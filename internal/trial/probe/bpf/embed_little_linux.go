//go:build 386 || amd64 || arm || arm64 || loong64 || mipsle || mips64le || ppc64le || riscv64

package bpf

import _ "embed"

// compiled is frames.c for this machine's byte order.
//
//go:embed frames_bpfel.o
var compiled []byte
