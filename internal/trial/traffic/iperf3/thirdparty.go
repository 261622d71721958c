package iperf3

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/trial/traffic"
)

// offerToThirdParty runs iperf3 against somebody else's server. What that server counted is known by what
// it tells the client at the end.
func (e Engine) offerToThirdParty(ctx context.Context, near, far traffic.End, load record.Load,
	c traffic.Conductor) (*record.Traffic, error) {
	raw, err := traffic.ConductAlone(ctx, host.Verb(host.FamilyTraffic, e.Name()), near, far, load, c)
	if err != nil {
		return nil, err
	}
	var out iperf3Output
	if err := json.Unmarshal(raw[0], &out); err != nil {
		return nil, fmt.Errorf("read the result of %s: %w", near.Node, err)
	}
	t, err := joinThirdParty(load, out.JSON, out.Started-near.Offset)
	if err != nil {
		return nil, err
	}
	t.Ends = map[string]record.EndUsage{"near": {Node: near.Node, UserNs: out.Usage.UserNs,
		SystemNs: out.Usage.SystemNs, CPUs: near.CPUs}}
	return t, nil
}

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
			f.TCP.Series = nil // of the sender, which is the stranger
		}
	}
	t.Caveats = append(t.Caveats, record.Caveat{Kind: "third-party",
		Text: "the far end is somebody else's iperf3: its counts are what it told, and of its machine " +
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
