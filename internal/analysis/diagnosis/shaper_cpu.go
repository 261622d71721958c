package diagnosis

// shaperCPU is like shaperBurst, with a saturated core.
var shaperCPU = rule("shaper-cpu", `
	label: the CPU is too slow for the shaper's rate
	means: a queue with a configured rate always has packets waiting, but sends at most 80 % of that \
		rate, and a core is saturated
	explains: busy-cores
	kind: packet
	linux: use a cheaper shaper, such as htb with fq_codel instead of CAKE, or set the rate \
		to what the CPU sustains
`, func(o *Observation) Candidate {
	return o.belowRate(requires("full-core", o.fullest(), .85, .97), "a core is full")
})
