//go:build !linux

package probe

type dumpSocket struct{}

func openDump(int, uint16, int, string) (*dumpSocket, error) {
	return nil, absent("netlink is a Linux thing")
}

func (*dumpSocket) of(int32) {}

func (*dumpSocket) ask() error { return absent("netlink is a Linux thing") }

func (*dumpSocket) next() ([]byte, error) { return nil, absent("netlink is a Linux thing") }

func (*dumpSocket) Close() error { return nil }

func deviceName(int) string { return "" }
