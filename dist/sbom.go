package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBill writes the bill of materials of a binary, from its build information, as CycloneDX 1.6 JSON.
func (r *release) writeBill(path string, b binary) error {
	content, err := os.ReadFile(b.path)
	if err != nil {
		return fmt.Errorf("read %s for its checksum: %w", b.name, err)
	}

	bill := cdx.NewBOM()
	subject := component(cdx.ComponentTypeApplication, b.info.Main.Path, "v"+r.version,
		[]string{"Apache-2.0"})
	subject.Hashes = &[]cdx.Hash{{
		Algorithm: cdx.HashAlgoSHA256,
		Value:     fmt.Sprintf("%x", sha256.Sum256(content)),
	}}
	bill.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &subject,
	}
	var parts []cdx.Component
	for _, m := range modules(b) {
		name, version, _ := strings.Cut(m, "@")
		parts = append(parts, component(cdx.ComponentTypeLibrary, name, version, r.licences[m]))
	}

	bill.Components = &parts
	var text bytes.Buffer
	encoder := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bill, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("encode the bill of materials: %w", err)
	}

	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}

	return nil
}

// component returns the component of a module, with its SPDX licence identifiers.
func component(kind cdx.ComponentType, path, version string, ids []string) cdx.Component {
	var licences cdx.Licenses
	for _, id := range ids {
		licences = append(licences, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}

	at := "pkg:golang/" + path + "@" + version
	c := cdx.Component{
		BOMRef:     at,
		Type:       kind,
		Name:       path,
		Version:    version,
		PackageURL: at,
	}
	if len(licences) > 0 {
		c.Licenses = &licences
	}

	return c
}
