package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// playOPNsense is "opnsense ADDRESS DIR": a router with OPNsense between the devices lan and wan of this
// network, whose API is at an address until it is told to end, for the key of the file apikey.txt in DIR.
// There it writes where it is reached, its certificate's fingerprint and its process. Routes, counters, times
// of the cores and the clock are those of this machine.
func playOPNsense() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	if err := serveOPNsense(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "opnsense:", err)
		os.Exit(1)
	}
}

func serveOPNsense(ctx context.Context, address, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "apikey.txt"))
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(b), "key=")
	key, rest, _ := strings.Cut(rest, "\n")
	_, secret, _ := strings.Cut(strings.TrimSpace(rest), "secret=")
	s := httptest.NewUnstartedServer(opnsenseAPI(key, secret))
	s.Listener.Close()
	if s.Listener, err = net.Listen("tcp", address); err != nil {
		return err
	}
	s.StartTLS()
	defer s.Close()
	for name, text := range map[string]string{"opnsense.pid": strconv.Itoa(os.Getpid()),
		"opnsense.address":     s.Listener.Addr().String(),
		"opnsense.certificate": fmt.Sprintf("SHA256:%X", sha256.Sum256(s.Certificate().Raw))} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "opnsense.up"), nil, 0o600)
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// opnsenseAPI answers as the controllers of github.com/opnsense/core do.
func opnsenseAPI(key, secret string) http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]func() any{
		"system/system_information": func() any {
			return map[string]any{"name": "fw.example.com", "updates": "0", "versions": []string{
				"OPNsense 26.1.6-amd64", "FreeBSD 14.3-RELEASE-p10", "OpenSSL 3.0.19"}}
		},
		"cpu_usage/get_c_p_u_type": func() any {
			return []string{"AMD Ryzen Embedded V1500B (4 cores, 8 threads)"}
		},
		"system/system_resources": func() any {
			return map[string]any{"memory": map[string]any{"total": "8469024768", "used": 1 << 30}}
		},
		"system/system_temperature": func() any {
			return []any{map[string]any{"device": "dev.cpu.0.temperature", "device_seq": 0,
				"temperature": "45.0", "type": "cpu", "type_translated": "CPU"}}
		},
		"firewall/pf_states":    func() any { return map[string]string{"current": "7", "limit": "200000"} },
		"traffic/interface":     opnsenseInterfaces,
		"interface/get_routes":  opnsenseRoutes,
		"activity/get_activity": opnsenseActivity,
	} {
		mux.HandleFunc("GET /api/diagnostics/"+path, func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(answer()) // who asked may be gone
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if k, s, _ := q.BasicAuth(); k != key || s != secret {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"status":401,"message":"Authentication Failed"}`))
			return
		}
		mux.ServeHTTP(w, q)
	})
}

// opnsenseInterfaces has what this kernel counts, under the names of FreeBSD's struct if_data.
func opnsenseInterfaces() any {
	all := map[string]any{}
	for _, dev := range []string{"lan", "wan"} {
		i := map[string]any{"device": dev, "name": strings.ToUpper(dev), "driver": "igc",
			"line rate": "1000000000 bit/s", "mtu": sysOf(dev, "mtu")}
		for theirs, ours := range map[string]string{"bytes received": "rx_bytes",
			"packets received": "rx_packets",
			"input errors":     "rx_errors", "input queue drops": "rx_dropped", "bytes transmitted": "tx_bytes",
			"packets transmitted": "tx_packets", "output errors": "tx_errors", "send queue drops": "tx_dropped",
			"collisions": "collisions"} {
			i[theirs] = sysOf(dev, "statistics/"+ours)
		}
		all[dev] = i
	}
	return map[string]any{"interfaces": all, "time": float64(time.Now().UnixMicro()) / 1e6}
}

func sysOf(dev, name string) string {
	b, _ := os.ReadFile(filepath.Join("/sys/class/net", dev, name)) // what is not there has no value
	return strings.TrimSpace(string(b))
}

// opnsenseRoutes lists the networks on the links.
func opnsenseRoutes() any {
	out := []any{}
	add := func(proto, to, dev, flags string) {
		out = append(out, map[string]string{"proto": proto, "destination": to, "gateway": "link#1",
			"flags": flags, "netif": dev, "expire": ""})
	}
	links, _ := net.Interfaces()
	for _, link := range links {
		addresses, _ := link.Addrs()
		for _, a := range addresses {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			proto := map[bool]string{true: "ipv4", false: "ipv6"}[n.IP.To4() != nil]
			add(proto, (&net.IPNet{IP: n.IP.Mask(n.Mask), Mask: n.Mask}).String(), link.Name, "U")
			add(proto, n.IP.String(), "lo0", "UHS")
		}
	}
	return out
}

// opnsenseActivity takes as long as top does, and lists what the cores did meanwhile.
func opnsenseActivity() any {
	before := coreTimes()
	time.Sleep(2 * time.Second)
	details := []any{}
	for core, after := range coreTimes() {
		total := 0.0
		for i := range after {
			after[i] -= before[core][i]
			total += after[i]
		}
		// user nice system idle iowait irq softirq (proc(5))
		for thread, share := range map[string]float64{"[idle{idle: " + core + "}]": after[3] + after[4],
			"[kernel{if_io_tqg_" + strings.TrimPrefix(core, "cpu") + "}]": after[6]} {
			details = append(details, map[string]string{"C": strings.TrimPrefix(core, "cpu"),
				"COMMAND": thread, "WCPU": fmt.Sprintf("%.2f%%", 100*share/total)})
		}
	}
	return map[string]any{"headers": []string{}, "details": details}
}

// coreTimes are the first seven times of each core.
func coreTimes() map[string][]float64 {
	out := map[string][]float64{}
	b, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		if len(words) < 8 || !strings.HasPrefix(words[0], "cpu") || words[0] == "cpu" {
			continue
		}
		for _, word := range words[1:8] {
			v, _ := strconv.ParseFloat(word, 64)
			out[words[0]] = append(out[words[0]], v)
		}
	}
	return out
}
