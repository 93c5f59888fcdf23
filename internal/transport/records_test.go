// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// pieces is a connection whose reads return a part of what there is.
type pieces struct {
	net.Conn

	rest   []byte
	random *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:1+p.random.IntN(len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// TestReadsEndWithTheRecord: whatever arrives, no read ends behind a record that
// is longer than unknownRecord but with it, and nothing is lost.
func TestReadsEndWithTheRecord(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var sent []byte
		long := map[int]int{} // the ends of long records, by where they begin
		for range 1 + r.IntN(20) {
			payload := r.IntN(300)
			if r.IntN(3) == 0 {
				payload = r.IntN(17_000)
			}
			begin := len(sent)
			sent = append(sent, 23, 3, 3)
			sent = binary.BigEndian.AppendUint16(sent, uint16(payload))
			sent = append(sent, bytes.Repeat([]byte{byte(payload)}, payload)...)
			if payload > unknownRecord {
				long[begin] = len(sent)
			}
		}

		c := &conn{Conn: &pieces{rest: sent, random: r}, records: &records{}}
		var got []byte
		for buffer := make([]byte, 40<<10); ; {
			n, err := c.Read(buffer)
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
			before := len(got)
			got = append(got, buffer[:n]...)
			for begin, end := range long {
				require.False(t, before < end && len(got) > end, "read %d-%d, record %d-%d",
					before, len(got), begin, end)
			}
		}
		require.Equal(t, sent, got)
	}
}
