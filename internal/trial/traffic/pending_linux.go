package traffic

import (
	"net"
	"slices"
)

// PendingConns are the connections at a door that have not shown the load's preamble, in the order in which
// they came.
type PendingConns struct {
	Most  int
	conns []net.Conn
}

// Add takes one in. Where there is no room, one leaves for it: of those from the address that most come
// from, who has waited longest. So nobody keeps others out by waiting.
func (w *PendingConns) Add(c net.Conn) {
	w.conns = append(w.conns, c)
	if len(w.conns) <= w.Most {
		return
	}
	from, most := map[string]int{}, 0
	for _, c := range w.conns {
		h := hostOf(c)
		from[h]++
		most = max(most, from[h])
	}
	i := slices.IndexFunc(w.conns, func(c net.Conn) bool { return from[hostOf(c)] == most })
	w.conns[i].Close()
	w.conns = slices.Delete(w.conns, i, i+1)
}

// Remove is for whoever has shown it, or is gone.
func (w *PendingConns) Remove(c net.Conn) {
	if i := slices.Index(w.conns, c); i >= 0 {
		w.conns = slices.Delete(w.conns, i, i+1)
	}
}

func hostOf(c net.Conn) string {
	a, _ := c.RemoteAddr().(*net.TCPAddr)
	if a == nil {
		return ""
	}
	return string(a.IP)
}
