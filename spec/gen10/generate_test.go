package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	table = "../amqp10.txt"
	codec = "../../internal/wire/amqp10"
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
		"composite without part":    "\ncomposite x 0x10 2.7.1 : y",
		"field without composite":   "part a\n  x uint",
		"unknown field type":        "part a\ncomposite x 0x10 2.7.1 : y\n  f word",
		"unknown attribute":         "part a\ncomposite x 0x10 2.7.1 : y\n  f uint often",
		"composite without words":   "part a\ncomposite x 0x10 2.7.1",
		"descriptor used twice":     "part a\ncomposite x 0x10 2.7.1 : y\ncomposite z 0x10 2.7.2 : y",
		"name used twice":           "part a\ncomposite x 0x10 2.7.1 : y\ncomposite x 0x11 2.7.2 : y",
		"descriptor out of range":   "part a\ncomposite x 0x80 2.7.1 : y",
		"unknown restricted":        "part a\nrestricted x word 2.8.1 : y",
		"choices that do not count": "part a\nrestricted x ubyte 2.8.1 : y\n  a 1",
		"default that is no choice": "part a\nrestricted x ubyte 2.8.1 : y\n  a 0\ncomposite c 0x10 2.7.1 : y\n  f x default=b",
		"unknown line":              "part a\nthing x : y",
	} {
		if _, err := parseProtocol(text); err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%s: got error %v, want one that names the line", name, err)
		}
	}
}
