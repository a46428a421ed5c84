// Command gen10 writes the generated files of internal/wire/amqp10 from the table
// spec/amqp10.txt: one file a part of the standard, one of all descriptors. It decides nothing
// about the protocol; the table does.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen10: ")
	table := flag.String("table", "amqp10.txt", "protocol table to read")
	out := flag.String("out", ".", "directory to write the generated files to")
	flag.Parse()
	if err := run(*table, *out); err != nil {
		log.Fatal(err)
	}
}

// run reads the table and writes the files it describes into the directory out.
func run(table, out string) error {
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	p, err := parseProtocol(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	files, err := generate(p)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(out, f.name), f.text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
