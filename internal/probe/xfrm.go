package probe

import (
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// xfrmNames lists the counters in Documentation/networking/xfrm_proc.rst. Each of them counts the packets
// that IPsec dropped for one reason.
var xfrmNames = strings.Fields(`
	XfrmInError XfrmInBufferError XfrmInHdrError XfrmInNoStates XfrmInStateProtoError XfrmInStateModeError
	XfrmInStateSeqError XfrmInStateExpired XfrmInStateMismatch XfrmInStateInvalid XfrmInTmplMismatch
	XfrmInNoPols XfrmInPolBlock XfrmInPolError XfrmInStateDirError XfrmOutError XfrmOutBundleGenError
	XfrmOutBundleCheckError XfrmOutNoStates XfrmOutStateProtoError XfrmOutStateModeError XfrmOutStateSeqError
	XfrmOutStateExpired XfrmOutPolBlock XfrmOutPolDead XfrmOutPolError XfrmOutStateInvalid
	XfrmOutStateDirError XfrmFwdHdrError XfrmAcquireError XfrmInIptfsError XfrmOutNoQueueSpace
`)

func xfrm(root Root) Probe {
	metrics := counters("count", "packets that IPsec dropped for this reason; see xfrm_proc in the "+
		"kernel's documentation", xfrmNames...)
	return namedProbe("xfrm", record.ScopeNode, metrics, xfrmNames, []namedFile{{root.proc("net/xfrm_stat"),
		parsePairs, "the kernel has no IPsec, or counts nothing about it (CONFIG_XFRM_STATISTICS)", 1}})
}
