<?php
// A payment provider's library, as far as the shops beside it use one, and what both shops do with a payment.

namespace Omnipay\Acquirer {
    final class Gateway
    {
        // purchase charges an order and gives the provider's reference. Each try has a key of its own, as most shops have it.
        // With CHARGE_AT it calls zabor's proxy; the two fields that name the order and the step mean nothing to the provider.
        public function purchase(string $order, int $cents): string
        {
            $answer = file_get_contents(\env('CHARGE_AT', $_ENV['ACQUIRER_URL']).'/payments', false, stream_context_create(['http' => ['method' => 'POST',
                'header' => "Content-Type: application/json\r\nIdempotency-Key: ".bin2hex(random_bytes(8))."\r\nZabor-Order: ".rawurlencode($order)."\r\nZabor-Step: charge\r\n",
                'content' => json_encode(['order' => $order, 'amount' => $cents, 'currency' => 'EUR'])]]));
            if ($answer === false) {
                throw new \RuntimeException("order $order was not charged");
            }

            return json_decode($answer)->id;
        }
    }
}

namespace {
    error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
    foreach (file(getcwd().'/.env', FILE_IGNORE_NEW_LINES | FILE_SKIP_EMPTY_LINES) as $line) {
        [$name, $value] = explode('=', $line, 2);
        $_ENV[$name] = $value;
    }

    function env(string $name, $default = null)
    {
        return $_ENV[$name] ?? $default;
    }

    function db(): PDO
    {
        return new PDO("mysql:host=127.0.0.1;port={$_ENV['DB_PORT']};dbname={$_ENV['DB_DATABASE']}", $_ENV['DB_USERNAME'], '', [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
    }

    // ordered notes what is to be paid: the checkout does, before there is a message.
    function ordered(string $order, int $cents): void
    {
        db()->prepare("INSERT INTO payments (order_id, cents, status) VALUES (?, ?, 'new')")->execute([$order, $cents]);
    }

    // paid notes a payment. For orders whose name begins with silent the database is away just then; the mail for an order
    // named broken cannot be sent.
    function paid(string $order, string $reference): void
    {
        if (str_starts_with($order, 'silent')) {
            throw new RuntimeException('the database is away');
        }
        db()->prepare("UPDATE payments SET status = 'paid', reference = ? WHERE order_id = ?")->execute([$reference, $order]);
        if ($order === 'broken') {
            throw new RuntimeException('the mail server is away');
        }
    }
}
