package record

// OfCell reports whether the row measures a cell, not a path.
func (a Assignment) OfCell() bool { return a.Kind == RowLoad || a.Kind == RowCipher }

// Cipher is the speed of a cipher, hash or key operation on a node.
type Cipher struct {
	Node      string `json:"node"`
	Watched   string `json:"watched"` // the node whose samples describe its CPUs
	Library   string `json:"library"`
	Version   string `json:"version"` // of the library
	Algorithm string `json:"algorithm"`
	Operation string `json:"operation"`
	Mode      string `json:"mode,omitempty"`        // for an AEAD: "evp" or "aead"
	Block     int    `json:"block_bytes,omitempty"` // 0: not applicable
	Threads   int    `json:"threads"`
	CPUs      int    `json:"cpus"` // of the node
	// bytes per second over all threads, or operations without a block
	Rate float64 `json:"rate"`
	// cycles per round of the loop of probe clock; 0 = unknown
	LoopCycles float64 `json:"loop_cycles,omitempty"`
}
