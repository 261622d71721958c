package kernel

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// mssMark is the name prefix of an empty chain without a hook. The rest of the name records the size.
const mssMark = "to_"

// MSSClamp is the table that lowers the MSS option of TCP to a size in bytes, or, if the size is ClampToPMTU,
// to what the MTU of the route permits. 0 means no clamp.
var MSSClamp = Table[int]{"mss", filter.mssClamp, equal[int], filter.addMSSClamp}

func (f filter) mssClamp(family nftables.TableFamily) (int, error) {
	t, err := f.table("mss", family)
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

// addMSSClamp adds the rule "tcp flags syn / syn,rst tcp option maxseg size set rt mtu". If size is not
// ClampToPMTU, the rule instead lowers an MSS that exceeds size to size.
func (f filter) addMSSClamp(table string, hooked bool, size int) error {
	const maxseg = unix.TCP_MAXSEG // also the kind of the MSS option (RFC 9293, section 3.2)
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

	e = append(e, &expr.Exthdr{SourceRegister: 1, Type: maxseg, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt})
	for _, family := range families {
		t := f.newTable(table, family)
		f.newChain(t, mssMark+strconv.Itoa(size))
		f.newRule(f.filterChain(t, rulesChain, nftables.ChainHookForward, hooked), e...)
	}

	return f.add()
}
