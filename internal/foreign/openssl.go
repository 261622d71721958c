package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/analysis/metrics"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/cipher"
	"github.com/chokepoint-lab/chokepoint/internal/factor"
)

// opensslLacks lists the items that all results of openssl lack.
var opensslLacks = []string{oneRun, "the node that it was", "clock and temperature of the CPU"}

// These factors describe conditions that occur in openssl speed but never in engine cipher. Engine cipher
// always uses EVP and elapsed time, and never uses an OpenSSL engine.
const (
	implementation = "implementation"
	lowLevel       = "low-level" // openssl speed without -evp, before OpenSSL 3
	timing         = "timing"
	cpuTime        = "cpu"
)

// speedLine holds one result of openssl speed.
type speedLine struct {
	algorithm, operation string // algorithm as named in package cipher, if listed there
	block                int    // 0 for key operations
	rate                 float64
	threads              int
	lowLevel             bool
	run                  speedRun
}

// speedRun describes one invocation of openssl speed, according to the messages that it prints.
type speedRun struct {
	engine  string // engine in use, or ""
	elapsed bool   // rates are relative to elapsed time, not CPU time
	began   bool   // a "Doing" line was read, so no earlier message is missing
	figures bool   // a result has been read
}

// read parses a line with a message. A message after a result belongs to the next invocation.
func (r *speedRun) read(l string) {
	if r.figures {
		*r = speedRun{}
	}

	switch {
	case strings.HasPrefix(l, elapsedMessage):
		r.elapsed = true
	case strings.HasPrefix(l, "Doing "):
		r.began = true
	default:
		r.engine = engineSet().FindStringSubmatch(l)[1]
	}
}

const elapsedMessage = "You have chosen to measure elapsed time"

var engineSet = check.Pattern(`^[Ee]ngine "([^"]+)" set\.$`)

// readOpenSSL parses the output of openssl speed, with or without -mr (apps/speed.c, 1.1.1 to 3.5).
func readOpenSSL(text []byte) ([]Result, error) {
	var lines []speedLine
	var leftOut []Result
	var sizes []int
	var columns []string // operations: "sign/s", "verify/s", "op/s"
	version := ""
	processes := map[string]int{} // with -multi: the number of processes, by result of figureOf
	// without -mr: the number of processes, and whether results followed the last "Got: "
	threads, figures := 1, false
	var run speedRun
	for at, l := range linesOf(text, 4096) {
		fields := strings.Fields(l)
		fail := func(what string) error { return place(text, at, fmt.Errorf("%s: %.60q", what, l)) }
		var found []speedLine
		var err error
		switch {
		case strings.HasPrefix(l, "Got: "): // line from a process of -multi; the sum has no heading
			l, number, _ := strings.Cut(strings.TrimPrefix(l, "Got: "), " from ")
			if figures {
				threads, figures = 1, false
			}

			if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < cipher.MaxThreads {
				threads = max(threads, n+1)
				processes[figureOf(l)] = max(processes[figureOf(l)], n+1)
			}

			if strings.HasPrefix(l, "+H") {
				_, sizes, err = machineSpeed(l, nil)
			}
		case strings.HasPrefix(l, "Doing "), strings.HasPrefix(l, elapsedMessage), engineSet().MatchString(l):
			run.read(l)
		case strings.HasPrefix(l, "Forked "):
		case strings.HasPrefix(l, "+"):
			found, sizes, err = machineSpeed(l, sizes)
			for i := range found {
				found[i].threads = max(processes[figureOf(l)], 1)
			}

			delete(processes, figureOf(l))
			figures = figures || len(found) > 0
		case len(fields) == 0:
		case len(fields) > 1 && (fields[0] == "version:" || fields[0] == "OpenSSL"):
			version = cmp.Or(version, fields[1])
			if figures {
				threads, figures = 1, false
			}

			if run.figures { // the figures belong to the previous invocation
				run = speedRun{}
			}
		case fields[0] == "type" && strings.HasSuffix(l, "bytes"):
			sizes, columns = nil, nil
			for _, f := range fields[1:] {
				if n, err := strconv.Atoi(f); err == nil && n > 0 {
					sizes = append(sizes, n)
				}
			}
		case strings.HasSuffix(fields[len(fields)-1], "/s"):
			columns = nil
			for _, f := range fields {
				if strings.HasSuffix(f, "/s") {
					columns = append(columns, strings.TrimSuffix(f, "/s"))
				}
			}
		case len(columns) > 0 && strings.Contains(l, "s "):
			found, err = keySpeed(fields, columns)
		case len(sizes) > 0 && strings.HasSuffix(l, "k"):
			found, err = blockSpeed(fields, sizes)
		}

		if err != nil {
			return nil, fail(err.Error())
		}

		run.figures = run.figures || len(found) > 0
		for _, x := range found {
			if math.IsNaN(x.rate) {
				why := place(text, at, fmt.Errorf("the rate of %s is no number: %.60q", name(x.algorithm), l))
				leftOut = append(leftOut, Result{LeftOut: why.Error()})
				continue
			}

			x.run = run
			if x.threads == 0 {
				x.threads, figures = threads, true
				clear(processes)
			}

			lines = append(lines, x)
		}

		if len(lines)+len(leftOut) > maxTrials {
			return nil, fail("too many figures")
		}
	}

	if len(lines) == 0 {
		return nil, errors.New("it contains no result of openssl speed")
	}

	var out []Result
	for _, x := range lines {
		out = append(out, x.result(name(version)))
	}

	return append(out, leftOut...), nil
}

// figureOf returns the key of a result line of -mr: its kind, and the number and name of the algorithm.
func figureOf(l string) string {
	fields := strings.SplitN(l, ":", 4)
	return strings.Join(fields[:min(len(fields), 3)], ":")
}

// result returns a Result with the factors of engine cipher on the default node, so that results of
// openssl and chokepoint can be compared.
func (x speedLine) result(version string) Result {
	r := newResult(version)
	r.Foreign.Lacks = slices.Clone(opensslLacks)
	r.set(factor.Engine, factor.CipherEngine)
	r.set(factor.Topology, "forward")
	r.set(cipher.NodeFactor, "router")
	r.set(cipher.LibraryFactor, cipher.OpenSSL)
	r.set(cipher.AlgorithmFactor, x.algorithm)
	r.setNumber(cipher.ThreadsFactor, x.threads)
	if x.block > 0 {
		r.setNumber(cipher.BlockFactor, x.block)
		r.Foreign.Values[metrics.CipherRate] = 8 * x.rate
	} else {
		r.Foreign.Values[metrics.CipherOps] = x.rate
	}

	a, known := cipher.Named(x.algorithm)
	if known && x.operation == "" {
		x.operation = a.Operations[0]
	}

	r.set(cipher.OperationFactor, x.operation)
	if x.operation == cipher.Encrypt {
		r.lack("whether it decrypts (-decrypt)")
	}

	if a.AEAD {
		r.set(cipher.ModeFactor, cipher.ModeEVP)
		r.lack("whether it is packets (-aead)")
	}

	x.setRun(&r)
	if x.operation == cipher.Hash && (strings.HasPrefix(version, "0.") || strings.HasPrefix(version, "1.")) {
		r.lack("whether it is EVP (-evp)")
	}

	return r
}

// setRun adds factors and facts for the conditions of a result. The low-level interface does not use an
// engine.
func (x *speedLine) setRun(r *Result) {
	switch {
	case x.lowLevel:
		r.set(implementation, lowLevel)
	case x.run.engine != "":
		r.set(implementation, "engine "+x.run.engine)
	}

	switch {
	case x.run.elapsed:
		r.Foreign.Facts["time"] = "elapsed"
	case x.run.began:
		r.set(timing, cpuTime)
	default:
		r.lack("whether time or CPU time divides (-elapsed)")
	}
}

// named sets the algorithm's name: the name in package cipher, or openssl's name if no VPN uses the
// algorithm. Before OpenSSL 3, openssl prints a space in the names of ciphers measured without EVP, as in
// "aes-128 cbc", and a dash with EVP, as in "aes-128-cbc".
func (x *speedLine) named(text string) {
	text = strings.ToLower(text)
	joined := strings.ReplaceAll(text, " ", "-")
	if keyed := strings.Contains(text, " bits"); !keyed && joined != text {
		x.algorithm, x.lowLevel = joined, true
		return
	}

	x.algorithm = text
	_, curve, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(") // "253 bits ecdh (x25519)"
	if _, known := cipher.Named(curve); known {
		x.algorithm = curve
	}
}

// machineSpeed parses a line of -mr with the parser that engine cipher uses. now contains the block sizes
// that apply to the lines that follow.
func machineSpeed(l string, sizes []int) (found []speedLine, now []int, err error) {
	fields := strings.Split(l, ":")
	if fields[0] == "+H" {
		for _, f := range fields[1:] {
			n, err := strconv.Atoi(f)
			if err != nil || n <= 0 {
				return nil, nil, errors.New("no size of a block")
			}

			now = append(now, n)
		}
		return nil, now, nil
	}

	if fields[0] != "+F" && fields[0] != "+F5" && fields[0] != "+F6" || len(fields) < 4 {
		return nil, sizes, nil // ignore key types that no VPN uses: RSA, DSA, ECDSA, FFDH
	}

	if slices.ContainsFunc(fields[3:], notFinite().MatchString) {
		unknown := speedLine{rate: math.NaN()}
		unknown.named(fields[2])
		if fields[0] != "+F" {
			return []speedLine{unknown}, sizes, nil
		}

		var known []int // block sizes that have a valid rate
		rates := slices.Clone(fields[:3])
		for i, f := range fields[3:] {
			switch {
			case notFinite().MatchString(f):
				found = append(found, unknown)
			case i < len(sizes):
				known, rates = append(known, sizes[i]), append(rates, f)
			}
		}

		if len(known) == 0 {
			return found, sizes, nil
		}

		others, _, err := machineSpeed(strings.Join(rates, ":"), known)
		return append(found, others...), sizes, err
	}

	text := l
	if fields[0] == "+F" {
		head := "+H"
		for _, n := range sizes {
			head += ":" + strconv.Itoa(n)
		}

		text = head + "\n" + l
	}

	speed, err := cipher.ParseSpeed([]byte(text))
	if err != nil {
		return nil, nil, err
	}

	for _, n := range sizes {
		if v, ok := speed.Bytes[n]; ok {
			x := speedLine{block: n, rate: v}
			x.named(fields[2])
			found = append(found, x)
		}
	}

	operations := []string{cipher.Derive}
	algorithm := map[string]string{"253": "x25519", "448": "x448"}[fields[2]]
	switch {
	case fields[0] == "+F6":
		operations = []string{cipher.Sign, cipher.Verify}
		algorithm = fields[3]
	case algorithm == "":
		algorithm = "ecdh-" + fields[2] + "-bits"
	}

	for i, v := range speed.Ops {
		x := speedLine{operation: operations[min(i, len(operations)-1)], rate: v}
		x.named(algorithm)
		found = append(found, x)
	}

	return found, sizes, nil
}

// blockSpeed parses "AES-128-GCM 123456.78k 234567.89k": the rate for each block size, in units of 1000
// bytes per second.
func blockSpeed(fields []string, sizes []int) (found []speedLine, err error) {
	first := len(fields) - len(sizes)
	if first < 1 {
		return nil, fmt.Errorf("want %d figures", len(sizes))
	}

	for i, f := range fields[first:] {
		number, thousands := strings.CutSuffix(f, "k")
		v, err := rateOf(number)
		if err != nil || !thousands || v*1e3 > maxRate {
			return nil, errors.New("no rate in thousands of bytes per second")
		}

		x := speedLine{block: sizes[i], rate: v * 1e3}
		x.named(strings.Join(fields[:first], " "))
		found = append(found, x)
	}

	return found, nil
}

// rateOf parses a positive rate. It returns NaN if openssl could not compute the rate, because it did
// nothing or took no time.
func rateOf(figure string) (float64, error) {
	if notFinite().MatchString(figure) {
		return math.NaN(), nil
	}

	v, err := strconv.ParseFloat(figure, 64)
	if err == nil && !(v > 0) {
		err = errors.New("no rate")
	}

	return v, err
}

// keySpeed parses "253 bits EdDSA (Ed25519) 0.0000s 0.0001s 24691.4 8822.4". The last fields are
// operations per second.
func keySpeed(fields, operations []string) (found []speedLine, err error) {
	first := len(fields) - len(operations)
	i := 0
	for i < len(fields) && !strings.HasSuffix(fields[i], "s") || i < len(fields) && fields[i] == "bits" {
		i++
	}

	if first < 1 || i > first || i == 0 {
		return nil, fmt.Errorf("want %d figures", len(operations))
	}

	for k, f := range fields[first:] {
		v, err := rateOf(f)
		if err != nil || v > maxRate {
			return nil, errors.New("no rate per second")
		}

		x := speedLine{
			rate:      v,
			operation: cmp.Or(map[string]string{"op": cipher.Derive}[operations[k]], operations[k]),
		}
		x.named(strings.Join(fields[:i], " "))
		found = append(found, x)
	}

	return found, nil
}
