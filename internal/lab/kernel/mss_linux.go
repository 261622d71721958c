package kernel

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	mssTable = "mss"
	// mssMark begins the name of an empty chain that no packet sees: it says what the size is.
	mssMark = "to_"
)

// ReadMSSClamp reads to what size the router lowers that of TCP's segments: 0 is not at all, ClampToPMTU to
// what the route's MTU carries. Both IP versions must have the same.
func ReadMSSClamp() (int, error) {
	size, err := ofBothFamilies(filter.mssClamp, equal)
	return size, explain(err, "read mss clamp")
}

func (f filter) mssClamp(family nftables.TableFamily) (int, error) {
	t, err := f.table(mssTable, family)
	if err != nil || t == nil {
		return 0, err
	}
	mark, err := pick(func() ([]*nftables.Chain, error) { return f.conn.ListChainsOfTableFamily(family) },
		func(c *nftables.Chain) bool {
			return c.Table.Name == t.Name && strings.HasPrefix(c.Name, mssMark)
		})
	if err != nil || mark == nil {
		return 0, filterError(err)
	}
	return strconv.Atoi(strings.TrimPrefix(mark.Name, mssMark))
}

// SetMSSClamp replaces what ReadMSSClamp reads, and reads it back.
func SetMSSClamp(size int) error {
	return explain(setTable(mssTable, size, equal, size != 0, func(f filter) error {
		return f.inTables(mssTable, func(t *nftables.Table) error { return f.addMSSClamp(t, true, size) })
	}, ReadMSSClamp), "set mss clamp")
}

// ProbeMSSClamp makes such a rule in a chain that no packet sees, and deletes it again.
func ProbeMSSClamp(size int) error {
	return explain(probeFilter(func(f filter, table string) error {
		return f.addMSSClamp(f.newTable(table, nftables.TableFamilyIPv4), false, size)
	}), "probe mss clamp")
}

// addMSSClamp is what nft(8) makes of "tcp flags syn / syn,rst tcp option maxseg size set rt mtu", or of a
// size that is lower than what the segment says.
func (f filter) addMSSClamp(t *nftables.Table, hooked bool, size int) error {
	c := f.filterChain(t, rulesChain, nftables.ChainHookForward, hooked)
	f.newChain(t, mssMark+strconv.Itoa(size))
	const maxseg = unix.TCP_MAXSEG // also the option's kind (RFC 9293, section 3.2)
	e := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{unix.IPPROTO_TCP}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0x06}, Xor: []byte{0}},
		equals([]byte{0x02})}
	if size == ClampToPMTU {
		e = append(e, &expr.Rt{Register: 1, Key: expr.RtTCPMSS},
			&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 2, Size: 2})
	} else {
		wanted := binary.BigEndian.AppendUint16(nil, uint16(size))
		e = append(e, &expr.Exthdr{DestRegister: 1, Type: maxseg, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt},
			&expr.Cmp{Op: expr.CmpOpGt, Register: 1, Data: wanted},
			&expr.Immediate{Register: 1, Data: wanted})
	}
	f.newRule(c, append(e, &expr.Exthdr{SourceRegister: 1, Type: maxseg, Offset: 2, Len: 2,
		Op: expr.ExthdrOpTcpopt})...)
	return f.add()
}
