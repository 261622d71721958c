//go:build !linux

package probe

type dumpSocket struct{}

func openQdiscDump() (*dumpSocket, error) {
	return nil, absent("queueing disciplines are a Linux thing")
}

func openClassDump() (*dumpSocket, error) {
	return nil, absent("queueing disciplines are a Linux thing")
}

func (*dumpSocket) of(int32) {}

func openFlowDump() (*dumpSocket, error) {
	return nil, absent("connection tracking by netfilter is a Linux thing")
}

func (*dumpSocket) ask() error { return absent("netlink is a Linux thing") }

func (*dumpSocket) next() ([]byte, error) { return nil, absent("netlink is a Linux thing") }

func (*dumpSocket) Close() error { return nil }

func deviceName(int) string { return "" }
