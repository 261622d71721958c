package vm

import (
	"slices"
	"strings"
)

// moduleFolders are taken whole: a router's network path and what it may call.
var moduleFolders = []string{
	"kernel/net/", "kernel/crypto/", "kernel/lib/", "kernel/drivers/virtio/",
	"kernel/drivers/net/bonding/", "kernel/drivers/net/ipvlan/", "kernel/drivers/net/ppp/",
	"kernel/drivers/net/team/", "kernel/drivers/net/vxlan/", "kernel/drivers/net/wireguard/",
	// What is not part of the kernel, but of its package's user: flow accounting, for example.
	"updates/", "extra/",
}

// notRouted are the parts of those folders that no router between two Ethernet links uses: other media, and
// network file systems.
var notRouted = []string{"kernel/net/6lowpan/", "kernel/net/9p/", "kernel/net/appletalk/", "kernel/net/atm/",
	"kernel/net/ax25/", "kernel/net/batman-adv/", "kernel/net/bluetooth/", "kernel/net/caif/",
	"kernel/net/can/", "kernel/net/ceph/", "kernel/net/dsa/", "kernel/net/hsr/", "kernel/net/ieee802154/",
	"kernel/net/lapb/", "kernel/net/mac80211/", "kernel/net/mac802154/", "kernel/net/netrom/",
	"kernel/net/nfc/", "kernel/net/phonet/", "kernel/net/rds/", "kernel/net/rfkill/", "kernel/net/rose/",
	"kernel/net/rxrpc/", "kernel/net/smc/", "kernel/net/sunrpc/", "kernel/net/tipc/", "kernel/net/wireless/",
	"kernel/net/x25/", "kernel/net/vmw_vsock/", "kernel/net/qrtr/", "kernel/lib/kunit/"}

// moduleNames are taken wherever they are.
var moduleNames = []string{"virtio_net", "virtio_console", "virtio_rng", "virtio_blk", "net_failover", "tun",
	"tap", "veth", "ifb", "dummy", "macvlan", "macvtap", "vrf", "geneve", "gtp", "bareudp", "macsec", "nlmon",
	"vmxnet3", "e1000", "e1000e"}

// wantedModule decides for the image.
func wantedModule(name, path string) bool {
	has := func(folders []string) bool {
		return slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(path, f) })
	}
	switch {
	case slices.Contains(moduleNames, name), !strings.Contains(path, "/"):
		return true // a tree without folders, such as OpenWrt's, was chosen by its maker
	case strings.HasPrefix(path, "kernel/arch/"):
		return strings.Contains(path, "/crypto/") || strings.Contains(path, "/lib/")
	case strings.HasPrefix(name, "test_"), strings.HasSuffix(name, "_kunit"), name == "tcrypt":
		return false // the kernel's own tests
	}
	return has(moduleFolders) && !has(notRouted)
}

// bootModules are loaded at boot, in this order, by one process: calling modprobe for each when it is first
// used costs 35 to 80 ms under emulation. First what the guest is reached by. Nothing is here that changes
// the path of a packet by being loaded. Names that a kernel does not have as modules are left out.
var bootModules = []string{
	"virtio_pci", "virtio_mmio", "virtio_console", "virtio_net", "virtio_rng",
	// Links. Not ifb and dummy, which make some of their own, nor 8021q, which enters a filter into each
	// link.
	"veth", "tun", "bridge",
	// Queues, and what steers to them.
	"sch_fq_codel", "sch_cake", "sch_fq", "sch_sfq", "sch_tbf", "sch_htb", "sch_netem", "sch_ingress",
	"cls_u32", "cls_matchall", "cls_flower", "act_police", "act_mirred", "act_gact",
	// Firewall, address translation, flow offload.
	"nf_conntrack", "nf_conntrack_netlink", "nf_tables", "nft_ct", "nft_nat", "nft_masq", "nft_chain_nat",
	"nft_redir", "nft_limit", "nft_log", "nf_log_syslog", "nft_reject", "nft_reject_inet", "nft_counter",
	"nft_hash", "nft_quota", "nf_flow_table", "nf_flow_table_inet", "nft_flow_offload", "nft_fib_inet",
	// The CPU's own implementations come first: those that the CPU lacks refuse to load, and the
	// algorithm's generic form serves.
	"aesni_intel", "ghash_clmulni_intel", "sha256_ssse3", "sha512_ssse3", "sha1_ssse3", "aes_ce_blk",
	"aes_neon_blk", "ghash_ce", "sha2_ce", "sha256_arm64", "aes_arm64", "chacha_neon", "poly1305_neon",
	// IPsec: without these the kernel "is unable to initialize cryptographic operations".
	"seqiv", "echainiv", "drbg", "jitterentropy_rng", "hmac", "sha1_generic", "sha256_generic",
	"sha512_generic", "aes_generic", "ctr", "gcm", "ghash_generic", "cbc", "ecb", "cmac", "authenc",
	"chacha_generic", "poly1305_generic", "chacha20poly1305", "xfrm_user", "xfrm_algo", "esp4", "esp6",
	"xfrm_interface", "wireguard",
	// What probes ask.
	"inet_diag", "tcp_diag", "udp_diag",
}

// bootList is the text of the guest's list of modules to load.
func bootList(chosen map[string]*module) string {
	var b strings.Builder
	for _, name := range bootModules {
		if chosen[normalName(name)] != nil {
			b.WriteString(normalName(name) + "\n")
		}
	}
	return b.String()
}
