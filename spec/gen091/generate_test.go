package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	table = "../amqp091.txt"
	codec = "../../internal/wire/amqp091"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parseProtocol(string(text))
	if err != nil {
		t.Fatal(err)
	}
	files, err := generate(p)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, f := range files {
		made[f.name] = true
		current, err := os.ReadFile(filepath.Join(codec, f.name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(current, f.text) {
			t.Errorf("%s is not what the table says: run go generate ./...", f.name)
		}
	}
	present, err := filepath.Glob(filepath.Join(codec, "*_gen.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range present {
		if !made[filepath.Base(path)] {
			t.Errorf("%s is no longer generated: delete it", filepath.Base(path))
		}
	}
}

func TestTableErrorsNameTheLine(t *testing.T) {
	for name, text := range map[string]string{
		"method without class":  "\nmethod x 1 client : y",
		"field without method":  "class a 1\nx short",
		"unknown field type":    "class a 1\nmethod x 1 client : y\n  f word",
		"unknown sender":        "class a 1\nmethod x 1 nobody : y",
		"method without words":  "class a 1\nmethod x 1 client",
		"id used twice":         "class a 1\nmethod x 1 client : y\nmethod z 1 client : y",
		"number out of range":   "class a 70000",
		"unknown scope of code": "code 1 X somewhere : y",
	} {
		if _, err := parseProtocol(text); err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%s: got error %v, want one that names the line", name, err)
		}
	}
}
