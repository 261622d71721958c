package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// runAlone is runConducted where nothing of ours runs at the far end: the near end connects to a stranger
// at far.Target, at the load's port.
func runAlone(parent context.Context, verb string, near, far End, load record.Load,
	c Conductor) (result []json.RawMessage, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	r := &conduct{verb: verb, load: load, conductor: c, cancel: cancel, last: map[string]glimpse{}}
	p := newParty("near", near)
	defer func() {
		if p.session != nil {
			p.session.Close()
			<-p.done
		}
	}()
	if err := r.alone(ctx, p, far); err != nil {
		if parent.Err() != nil {
			return nil, parent.Err()
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	return p.result, nil
}

func (r *conduct) alone(ctx context.Context, p *party, far End) error {
	if err := r.open(ctx, p, far, false, r.load.Port); err != nil {
		return err
	}
	if _, err := await(ctx, p, "ready", p.ready); err != nil {
		return err
	}
	w, err := r.conductor.Ready(ctx)
	if err != nil {
		return err
	}
	if err := p.session.Send(shiftWindow(w, p.end.Offset)); err != nil {
		return r.fault(p, fmt.Errorf("send the timeline: %w", err))
	}
	if err := p.session.Finish(); err != nil {
		return r.fault(p, fmt.Errorf("finish: %w", err))
	}
	return r.collect(ctx, p, time.Duration(w.Stop-w.Begin)+overtime)
}

// offerToStranger runs iperf3 against somebody else's server. What that server counted is known by what it
// tells the client at the end.
func (e Iperf3) offerToStranger(ctx context.Context, near, far End, load record.Load,
	c Conductor) (*record.Traffic, error) {
	raw, err := runAlone(ctx, host.Verb(host.FamilyTraffic, e.Name()), near, far, load, c)
	if err != nil {
		return nil, err
	}
	var out iperf3Output
	if err := json.Unmarshal(raw[0], &out); err != nil {
		return nil, fmt.Errorf("read the result of %s: %w", near.Node, err)
	}
	t, err := joinStranger(load, out.JSON, out.Started-near.Offset)
	if err != nil {
		return nil, err
	}
	t.Ends = map[string]record.EndUsage{"near": {Node: near.Node, UserNs: out.Usage.UserNs,
		SystemNs: out.Usage.SystemNs, CPUs: near.CPUs}}
	return t, nil
}

// joinStranger reads the client's file alone. The series of the server's side are not in it.
func joinStranger(load record.Load, client []byte, started int64) (*record.Traffic, error) {
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
	t.Caveats = append(t.Caveats, record.Caveat{Kind: "stranger",
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
