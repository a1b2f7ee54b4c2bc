package sqlstore

import "testing"

// A person's query writes nothing, whatever it says, and the connection writes
// again afterwards.
func TestRead(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			s := migrated(t, d.address(t))
			mustExec(t, s.DB(), "CREATE TABLE payments (order_id VARCHAR(20))")
			mustExec(t, s.DB(), "INSERT INTO payments VALUES ('1001')")
			for _, query := range []string{"DELETE FROM payments", "UPDATE payments SET order_id = 'x'", "DROP TABLE payments", "SELECT nothing FROM payments"} {
				rows, done, err := s.Reports().Query(t.Context(), query)
				if err == nil {
					for rows.Next() {
						continue
					}
					err = rows.Err()
					done()
				}
				if err == nil {
					t.Errorf("%s: no error", query)
				}
			}
			rows, done, err := s.Reports().Query(t.Context(), "SELECT order_id FROM payments")
			if err != nil {
				t.Fatal(err)
			}
			var orders []string
			for rows.Next() {
				var order string
				if err := rows.Scan(&order); err != nil {
					t.Fatal(err)
				}
				orders = append(orders, order)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			done()
			if len(orders) != 1 || orders[0] != "1001" {
				t.Errorf("orders %q, want 1001", orders)
			}
			for range 8 { // whichever connection it is
				mustExec(t, s.DB(), "INSERT INTO payments VALUES ('1002')")
			}
		})
	}
}
