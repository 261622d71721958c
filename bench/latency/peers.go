package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// command runs a program on a node to its end and returns its output.
func command(ctx context.Context, n *lab.Node, args ...string) ([]byte, error) {
	s, err := n.Agent.Open(ctx, agent.VerbExec, agent.Exec{Args: args})
	if err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", args[0], n.Name, err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Finish(); err != nil {
		return nil, err
	}
	var out, errs bytes.Buffer
	for {
		var part agent.ExecOutput
		switch err := s.Recv(&part); {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s on %s ended without a word", args[0], n.Name)
		case err != nil:
			return nil, fmt.Errorf("%s on %s: %w", args[0], n.Name, err)
		}
		out.Write(part.Out)
		errs.Write(part.Err)
		if part.Exit == nil {
			continue
		}
		if *part.Exit != 0 {
			return nil, fmt.Errorf("%s on %s: exit code %d: %s", args[0], n.Name, *part.Exit,
				strings.TrimSpace(errs.String()))
		}
		return out.Bytes(), nil
	}
}

// serveIRTT starts irtt's server on the far node. It lives as long as the session.
func serveIRTT(ctx context.Context, b *bench) (host.Session, error) {
	s, err := b.far.Agent.Open(ctx, agent.VerbExec, agent.Exec{Args: []string{"irtt", "server", "-i", "0",
		"-b", b.addr[1].String() + ":2112"}})
	if err != nil {
		return nil, fmt.Errorf("start irtt's server: %w", err)
	}
	time.Sleep(300 * time.Millisecond) // until it listens; a client that comes too early fails and says so
	return s, nil
}

// irttResult is the part of irtt's JSON that is used.
type irttResult struct {
	RoundTrips []struct {
		Lost  string `json:"lost"`
		Delay struct {
			RTT int64 `json:"rtt"`
		} `json:"delay"`
	} `json:"round_trips"`
}

func irtt(ctx context.Context, b *bench) (measured, error) {
	out, err := command(ctx, b.near, "irtt", "client", "-Q", "-i", interval.String(), "-d",
		fmt.Sprintf("%ds", b.o.seconds),
		"-l", strconv.Itoa(packetSize-headers), "-o", "-", b.addr[1].String()+":2112")
	if err != nil {
		return measured{}, err
	}
	return readIRTT(out)
}

func readIRTT(out []byte) (measured, error) {
	var r irttResult
	if err := json.Unmarshal(out, &r); err != nil {
		return measured{}, fmt.Errorf("read irtt's result: %w", err)
	}
	m := measured{tool: "irtt", sent: len(r.RoundTrips)}
	for _, t := range r.RoundTrips {
		if t.Lost == "false" && t.Delay.RTT > 0 {
			m.rtt = append(m.rtt, float64(t.Delay.RTT))
		}
	}
	if len(m.rtt) == 0 {
		return measured{}, errors.New("read irtt's result: no round trip in it")
	}
	slices.Sort(m.rtt)
	return m, nil
}

func ping(ctx context.Context, b *bench) (measured, error) {
	out, err := command(ctx, b.near, "ping", "-n", "-i", fmt.Sprintf("%.3f", interval.Seconds()), "-c",
		strconv.Itoa(b.o.count()),
		"-s", strconv.Itoa(packetSize-headers), "-W", "1", b.addr[1].String())
	if err != nil {
		return measured{}, err
	}
	return readPing(out)
}

var (
	pingReply   = regexp.MustCompile(`(?m)^[0-9]+ bytes from .* time=([0-9.]+) ms`)
	pingSummary = regexp.MustCompile(`(?m)^([0-9]+) packets transmitted`)
)

// readPing reads what iputils' ping prints.
func readPing(out []byte) (measured, error) {
	m := measured{tool: "ping"}
	for _, found := range pingReply.FindAllSubmatch(out, -1) {
		ms, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return measured{}, fmt.Errorf("read ping's reply %q: %w", found[0], err)
		}
		m.rtt = append(m.rtt, ms*1e6)
	}
	total := pingSummary.FindSubmatch(out)
	if total == nil || len(m.rtt) == 0 {
		return measured{}, errors.New("read ping's output: no reply or no summary in it")
	}
	m.sent, _ = strconv.Atoi(string(total[1]))
	slices.Sort(m.rtt)
	return m, nil
}
