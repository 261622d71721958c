package factor

// IMIX is the level of the factors packet_size and frame_size that stands for packets of several sizes, in
// turn.
const IMIX = "imix"

// IMIXSizes is one round of FD.io CSIT's IMIX_v4_1, as IP lengths: of each twelve Ethernet frames seven
// have 64 bytes, four 570 and one 1518. The small ones of IPv6 have 84, the least that hold our header
// (CSIT's have 78). Sizes are spread evenly over the round.
func IMIXSizes(ip string) []int {
	const ethernet, middle, large = 18, 570 - 18, 1518 - 18
	small := 64 - ethernet
	if ip == "6" {
		small = 84 - ethernet
	}
	return []int{small, middle, small, small, middle, small, large, middle, small, small, middle, small}
}
