package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func parseMeter(at string) (record.Meter, error) {
	if !strings.HasPrefix(at, "shelly://") {
		return record.Meter{}, errors.New("no meter")
	}
	return record.Meter{At: at}, nil
}

func noWrong(m *record.Machines) (string, error) {
	switch {
	case m.Client.At == "pc1":
		return "client", errors.New("no machine")
	case m.Server.Address == "no":
		return "server.address", errors.New("no address")
	case m.Router.LAN == "wrong":
		return "router.lan", errors.New("no device")
	case m.Place != nil && m.Place.Name == "bad":
		return "place.name", errors.New("no place")
	case m.Port == 7:
		return "server.isp", errors.New("no isp")
	}
	return "", nil
}

func TestReadMachines(t *testing.T) {
	m := record.Machines{
		Client: record.Machine{At: "local", Address: "192.0.2.1"},
		Router: record.Machine{
			At:         "ssh://root@192.0.2.2",
			LAN:        "br-lan",
			WAN:        "eth0",
			Management: "eth2",
			Identity:   "/key",
			Jump:       "me@gate:22",
			Driver:     "linux",
		},
		Server:      record.Machine{At: "ssh://pc2", ISP: "dhcp", ISPPort: "eth1"},
		Port:        20500,
		LinkSpeed:   "1G",
		Device:      "GL.iNet MT6000, \"OpenWrt\" 24.10",
		Notes:       &[]string{"fan off", "on the desk: 21 °C"},
		SSHConfig:   "my config",
		Meter:       &record.Meter{At: "shelly://192.0.2.5", Node: "server"},
		AllowSysctl: &[]string{"kernel.timer_migration", "net/ipv4/conf/eth0.5/rp_filter"},
		Firmware:    &[]string{"./flash.sh", "--to", "a \"b\""},
	}
	got, err := ReadMachines("lab.yaml", []byte(MachinesText(m)), parseMeter, noWrong)
	diff := cmp.Diff(m, got)
	if err != nil || diff != "" {
		t.Errorf("what was written: %v (-want +got)\n%s", err, diff)
	}

	const board = "firmware: {image: LEVEL.img, labgrid: [write-image IMAGE, power cycle]}\n" +
		"place: {tags: [device=a, lab=b], coordinator: hub, proxy: me@hub, config: e.yaml, state: shell, " +
		"power_before: on, power_after: off, wait: 30m}\n"
	place, err := ReadMachines("lab.yaml", []byte(board), parseMeter, noWrong)
	want := record.Machines{
		Flash: &record.Flash{Image: "LEVEL.img", Commands: []string{"write-image IMAGE", "power cycle"}},
		Place: &record.Place{
			Tags:        []string{"device=a", "lab=b"},
			Coordinator: "hub",
			Proxy:       "me@hub",
			Config:      "e.yaml",
			State:       "shell",
			PowerBefore: "on",
			PowerAfter:  "off",
			Wait:        30 * time.Minute,
			Boot:        5 * time.Minute,
		},
	}
	if diff := cmp.Diff(want, place); err != nil || diff != "" {
		t.Errorf("a place: %v (-want +got)\n%s", err, diff)
	}

	const text = "client: ssh://pc1\nserver: ssh://pc2\nmeter: shelly://a\n"
	short, err := ReadMachines("lab.yaml", []byte(text), parseMeter, noWrong)
	if err != nil || short.Client.At != "ssh://pc1" || short.Server.At != "ssh://pc2" ||
		*short.Meter != (record.Meter{At: "shelly://a"}) {
		t.Errorf("the short form: got %+v, %v", short, err)
	}
}

// TestReadMachinesWrong: each mistake is reported with its line, and nothing else is.
func TestReadMachinesWrong(t *testing.T) {
	for text, want := range map[string]string{
		"client: local\n":                                                       "lab.yaml:1:1: the lab file has no server",
		"client: pc1\nserver: ssh://pc2\n":                                      "lab.yaml:1:9: no machine",
		"client: local\nserver: ssh://pc2\nport: 5\n":                           `lab.yaml:3:1: the lab file has no key "port"`,
		"client: local\nserver: {at: ssh://b, lan: x}":                          `lab.yaml:2:23: server has no key "lan"`,
		"client: local\nserver: {at: ssh://b, address: no}":                     "lab.yaml:2:32: no address",
		"client: local\nserver: ssh://b\nmeter: x":                              "lab.yaml:3:8: meter: no meter",
		"client: local\nserver: ssh://b\nmeter: {node: router}":                 "lab.yaml:3:8: meter has no at",
		"client: local\nserver: ssh://b\nmeter: {at: shelly://a, node: fridge}": `lab.yaml:3:31: node: "fridge" is not one of client, router, server`,
		"client: local\nserver: ssh://b\nallow_sysctl: vm.swappiness":           "lab.yaml:3:15: allow_sysctl must be a list",
		"client: local\nserver: ssh://b\nfirmware: {}":                          "lab.yaml:3:11: firmware has no command",
		"client: local\nserver: ssh://b\nfirmware: {command: x}":                "lab.yaml:3:21: command must be a list",
		"client: local\nserver: ssh://b\ndata_port: 65535":                      `lab.yaml:3:12: data_port: "65535" is not`,
		"client: local\nrouter: {at: ssh://a, lan: wrong}\nserver: ssh://b":     "lab.yaml:2:28: no device",
		"client: local\nserver: {at: ssh://b}\ndata_port: 7":                    "lab.yaml:2:9: no isp",
		"client: local\nserver: ssh://b\nlink_speed: fast":                      `lab.yaml:3:13: link_speed "fast": want`,
		"client: local\nplace: {}":                                              "lab.yaml:2:8: place has no name and no tags",
		"place: {name: a, tags: [b=c]}":                                         "lab.yaml:1:8: place has both name and tags",
		"place: {name: a, state: shell}":                                        "lab.yaml:1:8: place has state without config",
		"place:\n  name: a\n  power_before: off":                                `lab.yaml:3:17: power_before: "off" is not cycle or on`,
		"place:\n  name: a\n  power_after: cycle":                               `lab.yaml:3:16: power_after: "cycle" is not`,
		"place:\n  name: a\n  wait: 5":                                          `lab.yaml:3:9: wait: "5" is not a duration`,
		"place: board-7":                                                        "lab.yaml:1:8: place must be a map",
		"place: {name: a, user: b}":                                             `lab.yaml:1:18: place has no key "user"`,
		"place: {name: bad}":                                                    "lab.yaml:1:15: no place",
		"place: {name: a}\nfirmware: {command: [a], labgrid: [b]}":              "lab.yaml:2:11: firmware has both command and labgrid",
		"place: {name: a}\nfirmware: {image: a}":                                "lab.yaml:2:11: firmware has image without labgrid",
		"":                                                                      "lab.yaml:1:1: the lab file is empty",
	} {
		_, err := ReadMachines("lab.yaml", []byte(text), parseMeter, noWrong)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
