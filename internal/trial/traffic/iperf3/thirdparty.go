package iperf3

import (
	"encoding/json"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// joinThirdParty reads the client's file alone. The series of the server's side are not in it.
func joinThirdParty(load record.Load, client []byte, started int64) (*record.Traffic, error) {
	t, err := joinIperf3(load, client, client, started)
	if err != nil {
		return nil, err
	}
	r, err := readIperf3(client)
	if err != nil {
		return nil, err
	}
	for i := range t.Flows {
		f := &t.Flows[i]
		f.Local, f.Remote = r.bothNames(f.Local)
		if f.Direction == record.Up {
			f.Received = nil
			continue
		}
		f.Local, f.Remote = f.Remote, f.Local
		f.Sent = nil
		if f.TCP != nil {
			f.TCP.Series = nil // of the sender, which is the third party
		}
	}
	t.Caveats = append(t.Caveats, record.Caveat{Kind: "third-party",
		Text: "the far end is a third party's iperf3: its counts are what it told, and of its machine " +
			"nothing is known"})
	if t.Raw, err = json.Marshal(map[string]json.RawMessage{"client": client}); err != nil {
		return nil, fmt.Errorf("keep iperf3 output: %w", err)
	}
	return t, nil
}

// bothNames are the ends of the connection that has a local name.
func (r *iperf3Report) bothNames(local string) (string, string) {
	for _, c := range r.Start.Connected {
		if joinHostPort(c.LocalHost, c.LocalPort) == local {
			return local, joinHostPort(c.RemoteHost, c.RemotePort)
		}
	}
	return local, ""
}
