package probe

import (
	"encoding/binary"
	"testing"
)

// flowDump is an answer of ctnetlink with one entry for each status.
func flowDump(status ...uint32) []byte {
	var b []byte
	for _, s := range status {
		body := make([]byte, nfHeader, 64)
		body = binary.NativeEndian.AppendUint16(body, 8)
		body = binary.NativeEndian.AppendUint16(body, 1|0x8000)
		body = append(body, 1, 2, 3, 4)
		body = binary.NativeEndian.AppendUint16(body, 8)
		body = binary.NativeEndian.AppendUint16(body, ctaStatus)
		body = binary.BigEndian.AppendUint32(body, s)
		b = append(b, message(newFlow, body)...)
	}
	return append(b, message(nlmsgDone, make([]byte, 4))...)
}

func TestParseFlows(t *testing.T) {
	const confirmed = 1 << 3
	got, done, err := parseFlows(flowDump(confirmed, confirmed|statusOffload,
		confirmed|statusOffload|statusHW), flowCount{tracked: 1})
	if want := (flowCount{4, 2, 1}); got != want || !done || err != nil {
		t.Errorf("got %+v, done %v, error %v, want %+v", got, done, err, want)
	}
	whole := flowDump(confirmed)
	for _, bad := range [][]byte{whole[:10], whole[:30], message(nlmsgError, make([]byte, 4)),
		message(nlmsgError, nil), message(newFlow, nil)} {
		if got, done, err := parseFlows(bad, flowCount{}); err == nil || done || got != (flowCount{}) {
			t.Errorf("%x: got %v %v and no error", bad, got, done)
		}
	}
}
