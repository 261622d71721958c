//go:build !linux

package kernel

func ReadFlowtable() ([]string, error)               { return nil, ErrUnsupported }
func SetFlowtable(devs []string) error               { return ErrUnsupported }
func ProbeFlowtable() error                          { return ErrUnsupported }
func Shaper(dev string) (uint64, error)              { return 0, ErrUnsupported }
func SetShaper(dev string, rate, burst uint64) error { return ErrUnsupported }
func ClearShaper(dev string) error                   { return ErrUnsupported }
func ProbeShaper() error                             { return ErrUnsupported }

func Policer(dev string) (uint64, error)              { return 0, ErrUnsupported }
func SetPolicer(dev string, rate, burst uint64) error { return ErrUnsupported }
func ProbePolicer() error                             { return ErrUnsupported }
func NAPIThreaded(dev string) (bool, error)           { return false, ErrUnsupported }
func SetNAPIThreaded(dev string, on bool) error       { return ErrUnsupported }
func IdlePolicies() (int, error)                      { return 0, ErrUnsupported }
func SetIdlePolicies(n int) error                     { return ErrUnsupported }
func IdleTunnels() (int, error)                       { return 0, ErrUnsupported }
func SetIdleTunnels(n int) error                      { return ErrUnsupported }
