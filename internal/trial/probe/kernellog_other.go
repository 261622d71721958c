//go:build !linux

package probe

func openKernelLog(string) (Sampler, error) {
	return nil, absent("the kernel log is read on Linux only")
}
