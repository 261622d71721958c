package probe

import (
	"bytes"
	"errors"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// snmpNames lists the protocol counters that reveal something about a path, its limits or its losses, with
// the names that nstat(8) uses. A counter that the kernel lacks gets no column.
var snmpNames = strings.Fields(`
	IpInReceives IpInHdrErrors IpInAddrErrors IpForwDatagrams IpInUnknownProtos IpInDiscards IpInDelivers
	IpOutRequests IpOutDiscards IpOutNoRoutes IpReasmTimeout IpReasmReqds IpReasmOKs IpReasmFails IpFragOKs
	IpFragFails IpFragCreates IpOutTransmits IcmpInMsgs IcmpInErrors IcmpInCsumErrors IcmpInDestUnreachs
	IcmpInTimeExcds IcmpInRedirects IcmpOutMsgs IcmpOutErrors IcmpOutRateLimitGlobal IcmpOutRateLimitHost
	IcmpOutDestUnreachs IcmpOutTimeExcds IcmpOutRedirects TcpActiveOpens TcpPassiveOpens TcpAttemptFails
	TcpEstabResets TcpInSegs TcpOutSegs TcpRetransSegs TcpInErrs TcpOutRsts TcpInCsumErrors UdpInDatagrams
	UdpNoPorts UdpInErrors UdpOutDatagrams UdpRcvbufErrors UdpSndbufErrors UdpInCsumErrors UdpIgnoredMulti
	UdpMemErrors IpExtInNoRoutes IpExtInTruncatedPkts IpExtInOctets IpExtOutOctets IpExtInCsumErrors
	IpExtInNoECTPkts IpExtInECT1Pkts IpExtInECT0Pkts IpExtInCEPkts IpExtReasmOverlaps TcpExtListenOverflows
	TcpExtListenDrops TcpExtSyncookiesSent TcpExtPruneCalled TcpExtRcvPruned TcpExtOfoPruned
	TcpExtOutOfWindowIcmps TcpExtLockDroppedIcmps TcpExtPAWSEstab TcpExtDelayedACKs TcpExtDelayedACKLocked
	TcpExtDelayedACKLost TcpExtTCPHPHits TcpExtTCPPureAcks TcpExtTCPRenoRecovery TcpExtTCPSackRecovery
	TcpExtTCPSACKReneging TcpExtTCPSACKReorder TcpExtTCPRenoReorder TcpExtTCPTSReorder TcpExtTCPFullUndo
	TcpExtTCPPartialUndo TcpExtTCPDSACKUndo TcpExtTCPLossUndo TcpExtTCPLostRetransmit TcpExtTCPSackFailures
	TcpExtTCPLossFailures TcpExtTCPFastRetrans TcpExtTCPSlowStartRetrans TcpExtTCPTimeouts TcpExtTCPLossProbes
	TcpExtTCPLossProbeRecovery TcpExtTCPRcvCollapsed TcpExtTCPBacklogCoalesce TcpExtTCPDSACKOldSent
	TcpExtTCPDSACKOfoSent TcpExtTCPDSACKRecv TcpExtTCPDSACKOfoRecv TcpExtTCPAbortOnData TcpExtTCPAbortOnMemory
	TcpExtTCPAbortOnTimeout TcpExtTCPAbortFailed TcpExtTCPMemoryPressures TcpExtTCPMemoryPressuresChrono
	TcpExtTCPSpuriousRTOs TcpExtTCPBacklogDrop TcpExtTCPRcvQDrop TcpExtPFMemallocDrop TcpExtTCPMinTTLDrop
	TcpExtTCPReqQFullDrop TcpExtTCPReqQFullDoCookies TcpExtTCPRetransFail TcpExtTCPRcvCoalesce
	TcpExtTCPOFOQueue TcpExtTCPOFODrop TcpExtTCPOFOMerge TcpExtTCPChallengeACK TcpExtTCPSpuriousRtxHostQueues
	TcpExtTCPAutoCorking TcpExtTCPFromZeroWindowAdv TcpExtTCPToZeroWindowAdv TcpExtTCPWantZeroWindowAdv
	TcpExtTCPZeroWindowDrop TcpExtTCPSynRetrans TcpExtTCPOrigDataSent TcpExtTCPWqueueTooBig
	TcpExtTCPHystartTrainDetect TcpExtTCPHystartDelayDetect TcpExtTCPDelivered TcpExtTCPDeliveredCE
	TcpExtTCPMTUPFail TcpExtTCPMTUPSuccess TcpExtBusyPollRxPackets Ip6InReceives Ip6InHdrErrors
	Ip6InTooBigErrors Ip6InNoRoutes Ip6InAddrErrors Ip6InTruncatedPkts Ip6InDiscards Ip6InDelivers
	Ip6OutForwDatagrams Ip6OutRequests Ip6OutDiscards Ip6OutNoRoutes Ip6ReasmTimeout Ip6ReasmReqds Ip6ReasmOKs
	Ip6ReasmFails Ip6FragOKs Ip6FragFails Ip6FragCreates Ip6OutTransmits Ip6InCEPkts Icmp6InMsgs Icmp6InErrors
	Icmp6OutMsgs Icmp6InPktTooBigs Icmp6OutPktTooBigs Icmp6OutRateLimitHost Udp6InDatagrams Udp6NoPorts
	Udp6InErrors Udp6OutDatagrams Udp6RcvbufErrors Udp6SndbufErrors Udp6InCsumErrors Udp6MemErrors
`)

var errSnmp = errors.New("parse protocol counters: want pairs of a heading and a line of numbers")

// parseSnmp parses /proc/net/snmp and /proc/net/netstat. Each protocol has a line "Proto: Name…" and a
// line "Proto: value…" (net/ipv4/proc.c). parseSnmp stores the counters in dst[want[Proto+Name]];
// Proto+Name is the name that nstat(8) uses. If parseSnmp returns an error, dst is undefined.
func parseSnmp(b []byte, want map[string]int, dst []float64) error {
	var scratch [64]byte
	for len(b) > 0 {
		var names, values []byte
		names, b = line(b)
		values, b = line(b)
		proto, names := word(names)
		again, values := word(values)
		if len(proto) == 0 && len(again) == 0 {
			continue
		}

		if !bytes.Equal(proto, again) || !bytes.HasSuffix(proto, []byte(":")) {
			return errSnmp
		}

		proto = proto[:len(proto)-1]
		for {
			var n, v []byte
			n, names = word(names)
			v, values = word(values)
			if len(n) == 0 && len(v) == 0 {
				break
			}

			x, ok := signed(v)
			if !ok || len(n) == 0 {
				return errSnmp
			}

			if i, ok := want[string(append(append(scratch[:0], proto...), n...))]; ok {
				dst[i] = x
			}
		}
	}
	return nil
}

// parsePairs parses lines of the form "name value …", as in /proc/net/snmp6, /proc/vmstat and /proc/meminfo.
// In /proc/meminfo, a colon follows each name.
func parsePairs(b []byte, want map[string]int, dst []float64) error {
	for l := range bytes.Lines(b) {
		n, rest := word(l)
		if len(n) == 0 {
			continue
		}

		v, _ := word(rest)
		x, ok := signed(v)
		if !ok {
			return errors.New("parse counters: want lines of a name and a number")
		}

		if i, ok := want[string(bytes.TrimSuffix(n, []byte(":")))]; ok {
			dst[i] = x
		}
	}
	return nil
}

func snmp(root Root) Probe {
	metrics := counters("count", "protocol counter, named as in nstat; see snmp_counter in the kernel's "+
		"documentation",
		snmpNames...)
	return namedProbe("snmp", record.ScopeNode, metrics, snmpNames, []namedFile{
		{root.proc("net/snmp"), parseSnmp, "the kernel has no protocol counters in /proc", 1},
		{root.proc("net/netstat"), parseSnmp, "", 1}, {root.proc("net/snmp6"), parsePairs, "", 1},
	})
}

// namedProbe returns a probe that reads named numbers from files. names lists the kernel's names for the
// metrics, in the order of metrics.
func namedProbe(name, scope string, metrics []record.Metric, names []string, parts []namedFile) Probe {
	var stems []string
	for _, m := range metrics {
		stems = append(stems, m.Name)
	}
	return Probe{
		Name:   name,
		Scope:  scope,
		Slow:   true,
		Stems:  metrics,
		Source: func(Options) (Sampler, error) { return openNamed(parts, names, stems) },
	}
}

// namedFile describes a file with named numbers. The first file in a list must exist. If it does not, the
// error includes the reason given in why.
type namedFile struct {
	path  string
	parse func(b []byte, want map[string]int, dst []float64) error
	why   string
	scale float64
}

// namedSampler reads named numbers from files. A name that occurs in no file gets no column.
type namedSampler struct {
	columns
	files []*file
	parts []namedFile
	want  map[string]int
	raw   []float64
}

func openNamed(parts []namedFile, names, stems []string) (Sampler, error) {
	s := &namedSampler{want: map[string]int{}, raw: make([]float64, len(names))}
	for i, p := range parts {
		f, err := openFile(p.path, p.why)
		if err != nil && i == 0 {
			return nil, err
		}

		if err == nil {
			s.files, s.parts = append(s.files, f), append(s.parts, p)
		}
	}

	for i, n := range names {
		s.want[n] = i
	}

	dst := make([]float64, len(names))
	if err := s.Sample(dst); err != nil {
		s.Close()
		return nil, err
	}

	clear(s.want)
	for i, v := range dst {
		if v == v { // v is not NaN
			s.want[names[i]] = len(s.columns)
			s.columns = append(s.columns, stems[i])
		}
	}

	return s, nil
}

func (s *namedSampler) Sample(dst []float64) error {
	fill(dst, nan)
	raw := s.raw[:len(dst)]
	for i, f := range s.files {
		b, err := f.read()
		if err != nil {
			return err
		}

		fill(raw, nan)
		if err := s.parts[i].parse(b, s.want, raw); err != nil {
			return err
		}

		for j, v := range raw {
			if v == v {
				dst[j] = v * s.parts[i].scale
			}
		}
	}

	return nil
}

func (s *namedSampler) Close() (err error) {
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	return err
}
