package metrics

import (
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Names of the metrics of ciphers.
const (
	CipherRate    = "cipher_rate_bps"
	CipherOps     = "cipher_operations_per_s"
	CyclesPerByte = "cipher_cycles_per_byte"
	CyclesPerOp   = "cipher_cycles_per_operation"
	CipherClock   = "cipher_clock_hz"
)

func cipherMetrics() []record.Metric {
	m := func(name, label, unit, better, doc string) record.Metric {
		return declared(record.ScopeNode, name, label, unit, better, doc+"; engine cipher")
	}
	return []record.Metric{
		m(CipherRate, "cipher rate", "bit/s", higher,
			"data that the node's cipher or hash processed per second, all threads together"),
		m(CipherOps, "operations", "op/s", higher,
			"keys derived, signatures made or verified per second, all threads together"),
		m(CyclesPerByte, "cycles per byte", "cycles", lower,
			"clock cycles per byte, with one thread: cipher_clock_hz ÷ bytes per second"),
		m(CyclesPerOp, "cycles per operation", "cycles", lower, "clock cycles per operation, with one "+
			"thread"),
		m(CipherClock, "clock of the cipher's CPU", "Hz", "", "highest clock of any CPU in the window, "+
			"as cpufreq reports it, or on x86 estimated from a loop that takes a known number of cycles"),
	}
}

// cipherRateOf returns the metric for a cipher's speed. If block is 0, the cipher has no block size.
func cipherRateOf(block int) string {
	if block > 0 {
		return CipherRate
	}
	return CipherOps
}

// ClockOf returns the highest clock of a node's CPUs between two times, in Hz, and its source. The source is
// cpufreq or, without it, the loop that the clock probe times, which takes loopCycles cycles per iteration.
// ClockOf returns 0 if neither is available.
func ClockOf(n record.NodeData, from, to int64, loopCycles float64) (hz float64, source string) {
	if hz = MaxOf(n, "cpufreq", "frequency_hz", from, to); hz > 0 {
		return hz, cipher.ClockTold
	}

	if hz = loopCycles * MaxOf(n, "clock", "loop_rate_best_hz", from, to); hz > 0 {
		return hz, cipher.ClockEstimated
	}

	if loopCycles > 0 {
		return 0, cipher.ClockUntimed
	}

	return 0, cipher.ClockUnknown
}

// MaxOf returns the largest value between two times in any of the columns of a probe that belong to a stem
// (see SeriesOf). It returns 0 if there is no value.
func MaxOf(n record.NodeData, probe, stem string, from, to int64) (most float64) {
	for _, c := range SeriesOf(n, probe, stem) {
		if v, ok := c.Curve.Largest(from, to); ok {
			most = max(most, v)
		}
	}
	return most
}

func (m *Measured) addCipher(t *record.Trial) {
	c := t.Cipher
	if c == nil {
		return
	}

	rate := CipherOps
	cycles := CyclesPerOp
	v := c.Rate
	if c.Block > 0 {
		rate = CipherRate
		cycles = CyclesPerByte
		v = 8 * c.Rate
	}

	m.Set(rate, v)
	var hz float64
	hz, m.ClockFrom = ClockOf(t.Nodes[c.Watched], t.Window.Start, t.Window.End, c.LoopCycles)
	if hz <= 0 {
		m.Lack("the clock is "+m.ClockFrom, CipherClock, cycles)
		return
	}

	m.Set(CipherClock, hz)
	if c.Threads == 1 {
		m.Set(cycles, hz/c.Rate)
	} else {
		m.Lack("it is told of one thread alone", cycles)
	}
}
