package diagnosis

func clientCPU() Rule {
	return endCPU(ClientCPU, "client", func(o *Observation) string { return o.near() })
}
