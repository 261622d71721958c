package diagnosis

func serverCPU() Rule {
	return endCPU(ServerCPU, "server", func(o *Observation) string { return o.far() })
}
