// Package meter reads the power that a device draws from an external meter: a smart plug with HTTP, or the
// output of a command. If the meter fails, the samples contain the reason, but no trial fails.
package meter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

const (
	// every is the interval between queries of a plug. Plugs themselves measure about once a second.
	every = time.Second
	// patience is the maximum time to wait for an answer. usualSilence is the maximum time to wait for the
	// next line of a command.
	patience     = 2 * time.Second
	usualSilence = 10 * time.Second
	// nearest is the minimum time between readings, in ns. A reading that follows the previous one sooner is
	// dropped.
	nearest = int64(5 * time.Millisecond)
	// maxReadings is the maximum number of readings stored between calls of Samples.
	maxReadings = 1 << 20
)

// Meter reads a power meter while its method Run runs. It is safe for concurrent use.
type Meter struct {
	meter    record.Meter
	spec     spec
	password host.Secret
	node     string // node whose power is measured
	silence  time.Duration

	mu       sync.Mutex
	at       []int64 // times of the readings by the controller's clock, in ns
	watts    []float64
	decimals int // maximum number of decimals in the readings so far
	failed   error
	failedAt int64
	first    chan struct{} // closed after the first reading
}

// Open prepares to read the power of a node. It reads the meter's password, and returns an error if the
// password is missing.
func Open(m record.Meter, node string) (*Meter, error) {
	s, err := parse(m.At)
	if err != nil {
		return nil, fmt.Errorf("power meter: %w", hinted(err))
	}

	if s.scheme == command {
		err := host.TrustedCommand(s.words)
		absent := errors.Is(err, host.ErrUnsupported) || errors.Is(err, fs.ErrNotExist)
		if err != nil && !absent { // a missing device becomes the reason why there are no readings
			return nil, fmt.Errorf("power meter: %w", err)
		}
	}

	x := &Meter{
		meter:   m,
		spec:    s,
		node:    node,
		silence: usualSilence,
		first:   make(chan struct{}),
	}
	if x.password, err = s.password(); err != nil {
		return nil, fmt.Errorf("power meter: %w", err)
	}

	return x, nil
}

// Uses describes what a meter uses on this machine: a command that runs on it, or a password sent to the
// meter. It returns "" if the meter uses neither.
func Uses(m record.Meter) string {
	s, err := parse(m.At)
	switch {
	case m.TypedIn() || err != nil:
		return ""
	case s.scheme == command:
		return "runs here, as power meter: " + strings.Join(s.words, " ")
	case s.passwordFile != "":
		return "sends to power meter " + s.host + " the first line of " + s.passwordFile
	case s.passwordEnv != "":
		return "sends to power meter " + s.host + " the value of the variable " + s.passwordEnv
	}
	return ""
}

// password reads the password from the source named in the meter's address, if any.
func (s spec) password() (host.Secret, error) {
	switch {
	case s.passwordEnv != "":
		text := os.Getenv(s.passwordEnv)
		if text == "" {
			return host.Secret{}, fmt.Errorf("password_env: the environment has no variable %s",
				s.passwordEnv)
		}
		return host.SecretFrom([]byte(text)), nil
	case s.passwordFile != "":
		secret, err := host.Password(s.passwordFile)
		if err != nil {
			err = fmt.Errorf("password_file: %w", err)
		}
		return secret, err
	}
	return host.Secret{}, nil
}

// Run reads the meter until ctx is done. It starts a command again one second after it has ended.
func (m *Meter) Run(ctx context.Context) {
	if m.spec.scheme != command {
		p := newPlug(m.spec, m.password)
		defer p.client.CloseIdleConnections()
		m.poll(ctx, p.read)
		return
	}

	for ctx.Err() == nil {
		if err := m.command(ctx); err != nil && ctx.Err() == nil {
			m.take(host.Monotonic(), "", err)
		}

		_ = host.Pause(ctx, every)
	}
}

// poll queries the meter repeatedly. The time of a reading is midway between the query and the answer.
func (m *Meter) poll(ctx context.Context, ask func(context.Context) (string, error)) {
	for ctx.Err() == nil {
		began := host.Monotonic()
		within, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
		text, err := ask(within)
		cause := context.Cause(within)
		if err != nil && cause != nil {
			err = cause
		}

		cancel()
		if ctx.Err() != nil {
			return
		}

		m.take(began+(host.Monotonic()-began)/2, text, err)
		_ = host.Pause(ctx, every-time.Duration(host.Monotonic()-began))
	}
}

// take records a reading, or the reason why there is no reading.
func (m *Meter) take(at int64, text string, err error) {
	var w float64
	if err == nil {
		w, err = watts(text)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.at)
	switch {
	case err != nil:
		m.failed, m.failedAt = err, host.Monotonic()
	case n > 0 && at-m.at[n-1] < nearest:
	default:
		m.decimals = max(m.decimals, min(decimals(text), 6))
		if n >= maxReadings {
			m.at, m.watts = m.at[n/2:], m.watts[n/2:]
		}

		m.at, m.watts = append(m.at, at), append(m.watts, w)
		select {
		case <-m.first:
		default:
			close(m.first)
		}
	}
}

// Ready waits for the first reading. If there is none in time, it returns the reason.
func (m *Meter) Ready(ctx context.Context, wait time.Duration) error {
	select {
	case <-m.first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return m.failed
	}

	return fmt.Errorf("no reading within %s", wait)
}

// Samples returns the readings in a period, and the last reading before it, as a series of power_w. It
// discards earlier readings. failing is the reason if the meter has failed since the last reading.
func (m *Meter) Samples(from, to int64) (s record.Samples, failing error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s = record.Samples{
		Probe: record.MeterProbe,
		Scope: record.ScopeNode,
		Metrics: []record.Metric{{
			Name:  "power_w",
			Unit:  "W",
			Scope: record.ScopeNode,
			Doc:   m.words(),
		}},
	}
	before := 0
	for before+1 < len(m.at) && m.at[before+1] < from {
		before++
	}

	m.at, m.watts = m.at[before:], m.watts[before:]
	table := record.NewTable("power_w")
	for i, at := range m.at {
		if at <= to {
			table.Append(at, m.watts[i])
		}
	}

	last := int64(math.MinInt64)
	n := len(table.T)
	if n > 0 {
		last = table.T[n-1]
	}

	if m.failed != nil && m.failedAt > last {
		failing = m.failed
	}

	if last < from {
		why := cmp.Or(failing, errors.New("it told nothing"))
		s.Unavailable = "the meter gave no reading: " + check.Plain(why.Error())
		return s, failing
	}

	s.Table = table
	return s, failing
}

// words describes the readings: the device, the meter and its resolution.
func (m *Meter) words() string {
	how := "asked once a second"
	if m.spec.scheme == command {
		how = "as often as it prints"
	}

	text := "power of " + m.node + " by " + m.meter.At + ", " + how
	if len(m.at) > 0 {
		text += ", in steps of " + strconv.FormatFloat(math.Pow10(-m.decimals), 'f', -1, 64) + " W"
	}

	return text
}
