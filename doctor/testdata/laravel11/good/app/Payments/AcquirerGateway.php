<?php

declare(strict_types=1);

namespace App\Payments;

use GuzzleHttp\Client;

final class AcquirerGateway implements Gateway
{
    private const string PATH = '/acquirer/payments';

    public private(set) string $last = '';

    private Client $http;

    public function __construct()
    {
        $this->http = new Client(['base_uri' => 'http://127.0.0.1:8070', 'timeout' => 40]);
    }

    public function charge(string $orderId, int $cents, int $attempt): string
    {
        $response = $this->http->post('/acquirer/payments', [
            'headers' => ['Zabor-Order' => $orderId, 'Zabor-Step' => 'charge'],
            'json' => ['amount' => $cents],
        ]);

        return json_decode((string) $response->getBody(), true)['id'];
    }
}
