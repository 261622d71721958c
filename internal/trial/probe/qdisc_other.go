//go:build !linux

package probe

type qdiscSocket struct{}

func openQdisc() (Sampler, error) { return nil, absent("queueing disciplines are a Linux thing") }

func (*qdiscSocket) dump([]qdiscLine) ([]qdiscLine, error) {
	return nil, absent("queueing disciplines are a Linux thing")
}

func (*qdiscSocket) Close() error { return nil }

func deviceName(int) string { return "" }
