<?php

declare(strict_types=1);

namespace App\Payments;

use GuzzleHttp\Client;
use GuzzleHttp\HandlerStack;
use GuzzleHttp\Middleware;

final class AcquirerGateway implements Gateway
{
    private const string PATH = '/payments';

    private Client $http;

    public function __construct()
    {
        $stack = HandlerStack::create();
        $stack->push(Middleware::retry(fn ($n) => $n < 3)); // ZB122
        $this->http = new Client(['base_uri' => 'https://pay.acquirer.example', 'handler' => $stack]);
    }

    public function charge(string $orderId, int $cents, int $attempt): string
    {
        $response = $this->http->post('/payments', [ // ZB150 ZB111
            'headers' => [
                'Idempotency-Key' => $orderId.'-'.$attempt, // ZB152
            ],
            'json' => ['amount' => $cents],
        ]);

        return json_decode((string) $response->getBody(), true)['id'];
    }
}
