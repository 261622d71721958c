//go:build mips || mips64 || ppc64 || s390x

package bpf

import _ "embed"

// compiled is frames.c for this machine's byte order.
//
//go:embed frames_bpfeb.o
var compiled []byte
