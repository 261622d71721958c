package driver

// All lists the drivers, in the order shown.
func All() []Driver { return []Driver{Linux{}} }

// Named finds a driver by its name.
func Named(name string) (Driver, bool) {
	for _, d := range All() {
		if d.Name() == name {
			return d, true
		}
	}
	return nil, false
}
