package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/labtest"
	"github.com/chokepoint-lab/chokepoint/internal/report"
)

// schemas holds what the documents and events of --json are compared with: by the format of documents, and
// under "" for events.
type schemas map[string]*jsonschema.Resolved

// loadSchemas reads the schemas of docs/reference. They allow further fields, as readers must; here none may
// be there that is not declared.
func loadSchemas() (schemas, error) {
	files, err := filepath.Glob("../../docs/reference/*.schema.json")
	s := schemas{}
	for _, file := range files {
		format, schema, loadErr := loadSchema(file)
		s[format] = schema
		err = errors.Join(err, loadErr)
	}
	return s, err
}

// loadSchema returns a schema with the format of its documents.
func loadSchema(name string) (format string, schema *jsonschema.Resolved, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", nil, err
	}

	var form jsonschema.Schema
	if err := json.Unmarshal(text, &form); err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}

	for _, def := range form.Defs {
		if err := assertFormats(def); err != nil {
			return "", nil, fmt.Errorf("%s: %w", name, err)
		}

		if def.Properties == nil {
			continue
		}

		def.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // false

		// Other things have a format, too.
		is := def.Properties["format"]
		if is != nil && is.Const != nil {
			format, _ = (*is.Const).(string)
		}
	}

	schema, err = form.Resolve(nil)
	return format, schema, err
}

// dateTime matches a time of RFC 3339.
const dateTime = `^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?` +
	`(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`

// assertFormats gives each text with a format the pattern of that format, because validators ignore formats.
func assertFormats(s *jsonschema.Schema) (err error) {
	switch {
	case s == nil:
		return nil
	case s.Format == "date-time":
		s.Pattern = dateTime
	case s.Format != "":
		err = fmt.Errorf("format %q has no pattern here", s.Format)
	}

	below := append(slices.Collect(maps.Values(s.Properties)), s.Items, s.AdditionalProperties)
	for _, part := range append(below, s.AnyOf...) {
		err = errors.Join(err, assertFormats(part))
	}
	return err
}

// check validates each of the JSON values in a text: events, which have the key event, and documents.
func (s schemas) check(text string) (documents, events int, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return documents, events, nil
		} else if err != nil {
			return documents, events, err
		}

		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return documents, events, err
		}

		object, _ := value.(map[string]any)
		format, _ := object["format"].(string)
		schema := s[format]
		switch _, isEvent := object["event"]; {
		case isEvent:
			events++
		case format == "" || schema == nil:
			return documents, events, fmt.Errorf("no schema for the format %q of %.300s", format, raw)
		default:
			documents++
		}

		if err := schema.Validate(value); err != nil {
			return documents, events, fmt.Errorf("%w of %.300s", err, raw)
		}
	}
}

// validCommand implements "valid FILE": the JSON values in a file, or stdout, are as the schemas say.
func validCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: valid FILE")
	}

	s, err := loadSchemas()
	ts.Check(err)
	documents, events, err := s.check(ts.ReadFile(args[0]))
	ts.Check(err)
	if documents+events == 0 {
		ts.Fatalf("%s: no JSON", args[0])
	}

	ts.Logf("valid: %d documents and %d events", documents, events)
}

// TestSchemasRefuse: what a document or an event must not be is refused.
func TestSchemasRefuse(t *testing.T) {
	s, err := loadSchemas()
	if err != nil {
		t.Fatal(err)
	}

	for name, wrong := range map[string]string{
		"no document":       `{}`,
		"unknown event":     `{"time": "2026-01-02T03:04:05Z", "event": "tea-break"}`,
		"event at no time":  `{"event": "warning"}`,
		"event at any time": `{"time": "yesterday", "event": "warning"}`,
		"rate in words":     `{"time": "2026-01-02T03:04:05Z", "event": "rate", "rate_bps": "fast"}`,
		"unknown field":     `{"time": "2026-01-02T03:04:05Z", "event": "rate", "rate_mbps": 5}`,
	} {
		if _, _, err := s.check(wrong); err == nil {
			t.Errorf("%s: %s is valid", name, wrong)
		}
	}

	right := `{"time": "2026-01-02T03:04:05.5Z", "event": "rate", "rate_bps": 5}`
	if _, _, err := s.check(right); err != nil {
		t.Errorf("%s: %v", right, err)
	}
}

// TestDocumentsAreValid: every sample run, and not a document in which one thing is wrong.
func TestDocumentsAreValid(t *testing.T) {
	s, err := loadSchemas()
	if err != nil {
		t.Fatal(err)
	}

	for name := range labtest.Samples {
		text := sampleJSON(t, name)
		if _, _, err := s.check(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	text := sampleJSON(t, "before")
	for _, wrong := range [][2]string{
		{`"format": "chokepoint/1"`, `"format": "chokepoint/0"`},
		{`"grade": "suspect"`, `"grade": 3`},
		{`"id": "20260107-030405-ffff"`, `"name": "20260107-030405-ffff"`},
		{`"median": `, `"median": "fast", "was": `},
		{`"cells": [`, `"cells": [null, `},
	} {
		planted := strings.Replace(text, wrong[0], wrong[1], 1)
		if planted == text {
			t.Errorf("the document lacks %s", wrong[0])
		}

		if _, _, err := s.check(planted); err == nil {
			t.Errorf("a document with %s is valid", wrong[1])
		}
	}
}

// sampleJSON returns the document of a sample run, as show --json prints it.
func sampleJSON(t *testing.T, name string) string {
	t.Helper()
	d := app.Dirs{Data: t.TempDir()}
	if err := labtest.WriteSample(t.Context(), d.StoreFile(), name); err != nil {
		t.Fatal(err)
	}

	doc, err := d.Document(t.Context(), "latest")
	if err != nil {
		t.Fatal(err)
	}

	text, err := report.JSON(doc)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}
