package cipher

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Command returns the arguments for openssl to measure a cell for a number of seconds. With -elapsed,
// openssl divides by wall-clock time instead of its own CPU time. With -mr, its output is
// machine-readable.
func (c Cell) Command(seconds int) []string {
	args := []string{"speed", "-mr", "-elapsed", "-seconds", strconv.Itoa(seconds)}
	if c.Threads > 1 {
		args = append(args, "-multi", strconv.Itoa(c.Threads))
	}

	if c.Block == 0 {
		a, _ := Named(c.Algorithm)
		if a.openssl != "" {
			return append(args, a.openssl)
		}
		return append(args, c.Algorithm)
	}

	args = append(args, "-bytes", strconv.Itoa(c.Block))
	if c.Operation == Decrypt {
		args = append(args, "-decrypt")
	}

	if c.Mode == ModeAEAD {
		args = append(args, "-aead")
	}

	return append(args, "-evp", c.Algorithm)
}

// Together returns the operations that openssl measures with one command.
func (c Cell) Together() []string {
	a, _ := Named(c.Algorithm)
	if c.Block == 0 {
		return a.Operations
	}
	return []string{c.Operation}
}

// Parts returns the number of successive measurements for a cell. With one command, openssl measures
// signing and then verifying.
func (c Cell) Parts() int {
	if c.Library == OpenSSL {
		return len(c.Together())
	}
	return 1
}

// Speed holds the parsed output of openssl speed -mr.
type Speed struct {
	Bytes map[int]float64
	Ops   []float64 // operations per second; for signatures: signing, then verifying
}

// ParseSpeed parses the standard output of openssl speed -mr. Line "+H" lists the block sizes and "+F" the
// bytes per second for each. "+F5" reports key derivations and "+F6" signatures and verifications. With
// -multi, the lines of each process come first, prefixed with "Got: " (apps/speed.c, 1.1.1 to 3.5).
func ParseSpeed(text []byte) (Speed, error) {
	s := Speed{Bytes: map[int]float64{}}
	var sizes []int
	for line := range bytes.Lines(text) {
		l := strings.TrimPrefix(strings.TrimSpace(string(line)), "Got: ")
		l, _, _ = strings.Cut(l, " from ")
		fields := strings.Split(l, ":")
		var err error
		switch fields[0] {
		case "+H":
			sizes = sizes[:0]
			for _, f := range fields[1:] {
				size, bad := strconv.Atoi(f)
				if bad != nil || size <= 0 {
					return Speed{}, fmt.Errorf("parse openssl speed: block size %.20q", f)
				}

				sizes = append(sizes, size)
			}
		case "+F":
			if len(fields) != 3+len(sizes) || len(sizes) == 0 {
				return Speed{}, errors.New("parse openssl speed: rates do not match the sizes")
			}

			for i, size := range sizes {
				if s.Bytes[size], err = rate(fields[3+i]); err != nil {
					return Speed{}, err
				}
			}
		case "+F5", "+F6":
			behind, rates := 3, 1 // skip index and bits; the last field is a time per operation, not a rate
			if fields[0] == "+F6" {
				behind, rates = 4, 2 // also skip the curve's name
			}

			of := fields[min(behind, len(fields)):]
			if len(of) != 2 {
				return Speed{}, errors.New("parse openssl speed: want two results of operations")
			}

			s.Ops = make([]float64, rates)
			for i := range s.Ops {
				if s.Ops[i], err = rate(of[i]); err != nil {
					return Speed{}, err
				}
			}
		}
	}

	if len(s.Bytes) == 0 && s.Ops == nil {
		return Speed{}, errors.New("parse openssl speed: no result")
	}

	return s, nil
}

func rate(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("parse openssl speed: rate %.30q", text)
	}
	return v, nil
}

// Of returns the rates of the operations that c's command measures, by operation.
func (s Speed) Of(c Cell) (map[string]float64, error) {
	rates := s.Ops
	if c.Block > 0 {
		rates = nil
		if v, ok := s.Bytes[c.Block]; ok {
			rates = []float64{v}
		}
	}

	operations := c.Together()
	if len(rates) != len(operations) {
		return nil, fmt.Errorf("openssl speed: %d results of %s, want %d", len(rates), c.Algorithm,
			len(operations))
	}

	out := map[string]float64{}
	for i, o := range operations {
		out[o] = rates[i]
	}

	return out, nil
}
