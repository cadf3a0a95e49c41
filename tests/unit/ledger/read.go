// Reads a tlog-proof and a consistency proof with Go's own sumdb packages, which share nothing with kblockd.
//
// Usage: read VKEY PROOF LEAF OLD_SIZE OLD_ROOT CONSISTENCY; PROOF and LEAF are files, the others text, hashes base64.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func hashes(lines []string) []tlog.Hash {
	var found []tlog.Hash
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			log.Fatal(err)
		}
		found = append(found, hash)
	}
	return found
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	verifier, err := note.NewVerifier(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	proof, _ := os.ReadFile(os.Args[2])
	leaf, _ := os.ReadFile(os.Args[3])
	start, checkpoint, _ := strings.Cut(string(proof), "\n\n")
	lines := strings.Split(start, "\n")
	opened, err := note.Open([]byte(checkpoint), note.VerifierList(verifier))
	if err != nil {
		log.Fatal(err)
	}
	head := strings.Split(opened.Text, "\n")
	size, root := number(head[1]), hashes(head[2:3])[0]
	index := number(strings.TrimPrefix(lines[1], "index "))
	if err := tlog.CheckRecord(hashes(lines[2:]), size, root, index, tlog.RecordHash(leaf)); err != nil {
		log.Fatal(err)
	}
	old := hashes(os.Args[5:6])[0]
	if err := tlog.CheckTree(hashes(strings.Fields(os.Args[6])), size, root, number(os.Args[4]), old); err != nil {
		log.Fatal(err)
	}
	fmt.Println(verifier.Name(), size, index)
}
