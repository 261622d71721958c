package record

// OfCell reports whether the row measures a cell itself and not only the cell's path.
func (a Assignment) OfCell() bool { return a.Kind == RowLoad || a.Kind == RowCipher }

// Cipher holds the measured speed of a cipher, hash or key operation on a node.
type Cipher struct {
	Node      string `json:"node"`
	Watched   string `json:"watched"` // node whose telemetry covers the measured node's CPUs
	Library   string `json:"library"`
	Version   string `json:"version"` // version of the library
	Algorithm string `json:"algorithm"`
	Operation string `json:"operation"`
	Mode      string `json:"mode,omitempty"`        // for AEADs: "evp" or "aead"
	Block     int    `json:"block_bytes,omitempty"` // 0 for key operations
	Threads   int    `json:"threads"`
	CPUs      int    `json:"cpus"` // number of CPUs of the node
	// Rate is in bytes per second for all threads together. For key operations, it is in operations per
	// second.
	Rate float64 `json:"rate"`
	// LoopCycles is the number of cycles per round of the loop of the clock probe; 0 means unknown.
	LoopCycles float64 `json:"loop_cycles,omitempty"`
}
