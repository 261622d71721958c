package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/tunnel"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/routeros"
)

// playRouterOS implements "routeros DIR": it plays a router by routeros.Play until it is stopped. The
// router's tunnels carry packets.
func playRouterOS() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	with := func(d *routeros.Device) { carry(ctx, d) }
	if err := routeros.Play(ctx, os.Args[1], with); err != nil {
		fmt.Fprintln(os.Stderr, "routeros:", err)
		os.Exit(1)
	}
}

// consoleOfRouterOS implements "routeros-console DIR", which sshd starts instead of a client's command. It
// passes the command to the played router.
func consoleOfRouterOS() {
	if err := routeros.Console(os.Args[1], os.Getenv("SSH_ORIGINAL_COMMAND"), os.Stdout); err != nil {
		fmt.Println("console:", err)
		os.Exit(1)
	}
}

// carried is the userspace WireGuard of a played interface. It makes its own keys.
type carried struct {
	host.Session
	port int
}

// carry applies the configuration of a played router's tunnels in its network namespace.
func carry(ctx context.Context, d *routeros.Device) {
	node := host.Inside(ctx, map[string]host.Handler{"wireguard": tunnel.WireGuardUserspace().Serve})
	ends := map[string]carried{} // by interface
	peers := map[string]string{} // by key, the interface
	complain := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "routeros:", err)
		}
	}
	ip := func(args ...string) {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			complain(fmt.Errorf("ip %v: %s", args, out))
		}
	}
	verb := map[bool]string{true: "del", false: "add"}
	d.Changed = func(menu string, row map[string]string, gone bool) {
		dev := row["interface"]
		end, ours := ends[dev]
		switch {
		case menu == "/interface/wireguard" && gone:
			end = ends[row["name"]]
			delete(ends, row["name"])
			complain(end.Finish())
			for end.Recv(nil) == nil {
			}
		case menu == "/interface/wireguard":
			var offer struct{ Public string }
			port, err := strconv.Atoi(row["listen-port"])
			mtu, wrong := strconv.Atoi(row["mtu"])
			s, more := node.Open(ctx, "wireguard", map[string]any{"device": row["name"], "port": port,
				"mtu": mtu})
			if err = errors.Join(err, wrong, more); err == nil {
				err = s.Recv(&offer)
			}

			complain(err)
			ends[row["name"]] = carried{s, port}
			row["public-key"] = offer.Public
			ip("link", "set", row["name"], "up")
		case menu == "/interface/wireguard/peers" && ours && !gone:
			peers[row["public-key"]] = dev
			err := end.Session.(host.SecretSession).SendSecret(host.SecretFrom(make([]byte, 32)))
			if err == nil {
				err = end.Send(map[string]any{"public": row["public-key"],
					"endpoint": net.JoinHostPort(row["endpoint-address"], row["endpoint-port"]),
					"allowed":  strings.Split(row["allowed-address"], ",")})
			}

			complain(errors.Join(err, end.Recv(nil)))
		case strings.HasSuffix(menu, "/address") && ours:
			ip("address", verb[gone], row["address"], "dev", dev)
		case strings.HasSuffix(menu, "/route"):
			ip("route", verb[gone], row["dst-address"], "via", row["gateway"])
		}
	}
	d.Moved = func(key string) map[string]string {
		end, ours := ends[peers[key]]
		var s struct {
			Sent, Received uint64
			Handshake      int64 `json:"handshake_ns"`
		}
		if !ours || errors.Join(end.Send(struct{}{}), end.Recv(&s)) != nil || s.Handshake < 0 {
			return nil
		}

		return map[string]string{"rx": strconv.FormatUint(s.Received, 10),
			"tx": strconv.FormatUint(s.Sent, 10), "last-handshake": time.Duration(s.Handshake).Round(time.Second).String()}
	}
	d.Pinged = func(address string) {
		c, err := net.Dial("udp", net.JoinHostPort(address, "9"))
		if err == nil {
			_, err = c.Write([]byte("ping"))
			c.Close()
		}

		complain(err)
	}
}
